package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// admin serves /livez, /readyz and /metrics.
type admin struct {
	listener net.Listener
	http     *http.Server
}

// openAdmin listens; the address "none" opens nothing and gives nil.
func (s *Server) openAdmin() (*admin, error) {
	if s.cfg.Admin == "none" || s.cfg.Admin == "" {
		return nil, nil
	}
	listener, err := net.Listen("tcp", s.cfg.Admin)
	if err != nil {
		return nil, fmt.Errorf("listen on admin address %s: %w: choose another with --admin host:port, or --admin none", s.cfg.Admin, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if waiting := s.unready(); waiting != "" {
			http.Error(w, waiting, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	return &admin{listener, &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}}, nil
}

// run serves until ctx ends.
func (a *admin) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.http.Close() })
	defer stop()
	if err := a.http.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve admin address: %w", err)
	}
	return nil
}

func rankLabel(rank uint16) string { return strconv.Itoa(int(rank)) }
