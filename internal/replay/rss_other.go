//go:build !unix

package replay

// maxRSS is not known on this system.
func maxRSS() int64 { return 0 }
