package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// childEnv is set in the processes that this program starts of itself; its value says which one it is.
const childEnv = "STINT_BENCH_CHILD"

// children are the other things that this program can be. Each says a line when it is ready, perhaps more later, and
// ends with its input.
var children = map[string]func(args []string) error{
	"proxy": proxyChild,
	"hold":  holdChild,
}

// child is a process of this program's own.
type child struct {
	cmd   *exec.Cmd
	hold  io.Closer // its end is the child's
	lines *bufio.Scanner
	said  string // its first line
}

// startChild returns when the child has said its first line.
func startChild(ctx context.Context, what string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, args...)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+what)
	c.cmd.Stderr = os.Stderr
	if c.hold, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.lines = bufio.NewScanner(out)
	if c.said, err = c.line(ctx); err != nil {
		c.kill()
		return nil, fmt.Errorf("%s %s: %w", what, strings.Join(args, " "), err)
	}
	return c, nil
}

// line returns the next line that the child says. If ctx ends first, the child is killed.
func (c *child) line(ctx context.Context) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	if !c.lines.Scan() {
		return "", fmt.Errorf("it ended without a word: %w", context.Cause(ctx))
	}
	return c.lines.Text(), nil
}

// kill ends the child as a crash does.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	_ = c.hold.Close()
}

// runChild is main of a child.
func runChild(what string) error {
	f := children[what]
	if f == nil {
		return fmt.Errorf("%s=%s: there is no such child", childEnv, what)
	}
	go func() { // whoever started it may be gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return f(os.Args[1:])
}
