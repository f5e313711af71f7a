FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /routerd ./cmd/routerd && mkdir /store

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /routerd /usr/local/bin/routerd
COPY --from=build --chown=nonroot:nonroot /store /var/lib/routerd
ENV ROUTERD_STORE=/var/lib/routerd ROUTERD_LISTEN=0.0.0.0:4222 ROUTERD_ADMIN=0.0.0.0:9464
VOLUME /var/lib/routerd
EXPOSE 4222 9464
ENTRYPOINT ["routerd"]
CMD ["serve"]
