// A Go program that keeps and drops memory and writes its heap profiles: leaky <protobuf> <text>.
package main

import (
	"os"
	"runtime"
	"runtime/pprof"
)

var kept [][]byte
var dropped []byte

//go:noinline
func keep(n int) {
	for i := 0; i < n; i++ {
		kept = append(kept, make([]byte, 1000+i%7*100))
		dropped = make([]byte, 5000)
	}
}

func write(path string, debug int) {
	file, err := os.Create(path)
	if err != nil {
		panic(err)
	}
	if err := pprof.Lookup("heap").WriteTo(file, debug); err != nil {
		panic(err)
	}
	if err := file.Close(); err != nil {
		panic(err)
	}
}

func main() {
	runtime.MemProfileRate = 4096
	keep(5000)
	// Go's profile is as of the last collection.
	runtime.GC()
	write(os.Args[1], 0)
	write(os.Args[2], 1)
	runtime.KeepAlive(kept)
}
