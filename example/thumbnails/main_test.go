package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/redistest"
)

// TestMain lets this binary be the program itself.
func TestMain(m *testing.M) {
	if os.Getenv(programVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

const programVar = "STINT_TEST_THUMBNAILS"

// album is a directory of pictures, and one for their thumbnails in it.
type album struct {
	t   *testing.T
	dir string
}

func setup(t *testing.T) album {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return album{t, dir}
}

func (a album) options() options {
	return options{out: filepath.Join(a.dir, "out"), in: []string{a.dir}}
}

func (a album) add(name string, content []byte) {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
		a.t.Fatal(err)
	}
}

// link adds a picture whose file is elsewhere, or nowhere yet: not even root can read it then.
func (a album) link(name, target string) {
	a.t.Helper()
	if err := os.Symlink(target, filepath.Join(a.dir, name)); err != nil {
		a.t.Fatal(err)
	}
}

// run runs the program to its end and returns what it says.
func (a album) run(ctx context.Context, o options) (said string, complete bool) {
	a.t.Helper()
	var out bytes.Buffer
	complete, err := run(ctx, o, &view{out: &out})
	if err != nil {
		a.t.Errorf("%v, after\n%s", err, &out)
	}
	return out.String(), complete
}

// thumbnails returns the sizes of the thumbnails of the files with a name, such as "128x85".
func (a album) thumbnails(name string) (sizes []string) {
	a.t.Helper()
	paths, err := filepath.Glob(filepath.Join(a.dir, "out", name+"-*.png"))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, path := range paths {
		file, err := os.ReadFile(path)
		if err != nil {
			a.t.Fatal(err)
		}
		c, err := png.DecodeConfig(bytes.NewReader(file))
		if err != nil {
			a.t.Errorf("%s: %v", path, err)
		}
		sizes = append(sizes, fmt.Sprintf("%dx%d", c.Width, c.Height))
	}
	return sizes
}

// encoded returns a picture of a size as a file.
func encoded(t *testing.T, w, h int, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := encode(&file, image.NewNRGBA(image.Rect(0, 0, w, h))); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func asJPEG(w io.Writer, img image.Image) error { return jpeg.Encode(w, img, nil) }
func asGIF(w io.Writer, img image.Image) error  { return gif.Encode(w, img, nil) }

// bomb is a small PNG that says that it is very large.
func bomb(t *testing.T) []byte {
	t.Helper()
	file := encoded(t, 1, 1, png.Encode)
	header := file[12:29] // type and content of the first chunk, whose checksum follows
	binary.BigEndian.PutUint32(header[4:], 1_000_000)
	binary.BigEndian.PutUint32(header[8:], 1_000_000)
	binary.BigEndian.PutUint32(file[29:], crc32.ChecksumIEEE(header))
	return file
}

func contains(t *testing.T, said string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(said, want) {
			t.Errorf("it does not say %q, but\n%s", want, said)
		}
	}
}

func TestEveryPictureThatCanBeDecodedGetsAThumbnail(t *testing.T) {
	a := setup(t)
	a.add("wide.png", encoded(t, 300, 200, png.Encode))
	a.add("tall.JPG", encoded(t, 200, 300, asJPEG))
	a.add("line.gif", encoded(t, 2000, 1, asGIF))
	a.add("icon.jpeg", encoded(t, 16, 20, asJPEG))
	a.add("notes.txt", []byte("not looked at"))
	a.add("text.png", []byte("not a picture"))
	a.add("half.png", encoded(t, 300, 200, png.Encode)[:80])
	a.add("bomb.png", bomb(t))
	synctest.Test(t, func(t *testing.T) {
		said, complete := a.run(t.Context(), a.options())
		if !complete {
			t.Errorf("incomplete")
		}
		contains(t, said, "4 made, 3 dead", "text.png: dead: image: unknown format",
			"half.png: dead: png: ", "bomb.png: dead: 1000000 x 1000000 pixels are too many")
	})
	for name, want := range map[string]string{"wide.png": "128x85", "tall.JPG": "85x128", "line.gif": "128x1", "icon.jpeg": "16x20"} {
		if got := a.thumbnails(name); len(got) != 1 || got[0] != want {
			t.Errorf("thumbnails of %s: %v, want one of %s", name, got, want)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(a.dir, "out")); err != nil || len(entries) != 4 {
		t.Errorf("the directory has %v, %v; want the thumbnails and nothing else", entries, err)
	}
}

func TestFilesOfOneNameDontShareAThumbnailAndThumbnailsGetNone(t *testing.T) {
	a := setup(t)
	a.add("summer/1.png", encoded(t, 128, 64, png.Encode))
	a.add("winter/1.png", encoded(t, 64, 128, png.Encode))
	o := a.options()
	o.in = append(o.in, filepath.Join(a.dir, "summer")) // twice, then
	synctest.Test(t, func(t *testing.T) {
		for range 2 {
			said, _ := a.run(t.Context(), o)
			contains(t, said, "2 made, 0 dead")
		}
	})
	if got := a.thumbnails("1.png"); len(got) != 2 || got[0] == got[1] {
		t.Errorf("thumbnails: %v", got)
	}
}

func TestAFileThatCanNotBeReadIsTriedAgain(t *testing.T) {
	a := setup(t)
	late := filepath.Join(t.TempDir(), "late.png")
	a.link("late.png", late)
	content := encoded(t, 300, 200, png.Encode)
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(100 * time.Millisecond) // of the bubble's time: after the first attempt, before the second
			if err := os.WriteFile(late, content, 0o644); err != nil {
				t.Error(err)
			}
		}()
		said, complete := a.run(t.Context(), a.options())
		if !complete {
			t.Error("incomplete")
		}
		contains(t, said, "again  "+filepath.Join(a.dir, "late.png")+": open", "1 made, 0 dead")
	})
}

func TestAFileThatStaysUnreadableIsDeadWithItsReasonAndTheRunIncomplete(t *testing.T) {
	a := setup(t)
	a.add("fine.png", encoded(t, 300, 200, png.Encode))
	a.link("gone.png", filepath.Join(a.dir, "nowhere"))
	synctest.Test(t, func(t *testing.T) {
		said, complete := a.run(t.Context(), a.options())
		if complete {
			t.Error("complete")
		}
		contains(t, said, "1 made, 1 dead", "gone.png: dead: open")
		if n := triedAgain(said); n != 4 {
			t.Errorf("tried again %d times, want 4", n)
		}
	})
}

func TestWithRedisTheNextRunGoesOn(t *testing.T) {
	a := setup(t)
	const all = 10
	for i := range all {
		a.add(fmt.Sprintf("%d.png", i), encoded(t, 300, 200, png.Encode))
	}
	a.link("gone.png", filepath.Join(a.dir, "nowhere"))
	o := a.options()
	o.redis = redistest.Start(t).Addr()

	ctx, interrupt := context.WithCancel(t.Context())
	first := interrupter{interrupt: interrupt}
	if complete, err := run(ctx, o, &view{out: &first}); complete || err != nil {
		t.Fatalf("the interrupted run: complete %v, %v", complete, err)
	}
	made, left := count(t, first.String(), "%d made, 0 dead"), count(t, first.String(), "%d are left; run the same again")
	if left == 0 || made+left != all+1 {
		t.Errorf("of %d pictures %d were made and %d left", all+1, made, left)
	}

	second, _ := a.run(t.Context(), o)
	if got := count(t, second, "%d made, 1 dead"); got != all-made || len(a.thumbnails("*")) != all {
		t.Errorf("%d were made by the first run and %d by the second, want %d in all", made, got, all)
	}
	if made > 0 {
		contains(t, second, fmt.Sprintf("; %d were made earlier", made))
	}
	if n := triedAgain(first.String()) + triedAgain(second); n != 4 {
		t.Errorf("what can't be read was tried again %d times in both runs, want 4", n)
	}

	if err := os.Remove(mustGlob(t, filepath.Join(a.dir, "out", "7.png-*"))); err != nil {
		t.Fatal(err)
	}
	third, _ := a.run(t.Context(), o)
	if len(a.thumbnails("7.png")) != 1 {
		t.Error("a thumbnail that was removed is not made again")
	}
	contains(t, third, "1 made, 1 dead", fmt.Sprintf("; %d were made earlier", all-1))
}

// interrupter is a buffer that interrupts when something is said to be tried again.
type interrupter struct {
	bytes.Buffer
	interrupt func()
}

func (b *interrupter) Write(p []byte) (int, error) {
	if triedAgain(string(p)) > 0 {
		b.interrupt()
	}
	return b.Buffer.Write(p)
}

// triedAgain counts the lines about another attempt.
func triedAgain(said string) (n int) {
	for l := range strings.Lines(said) {
		if strings.HasPrefix(l, "again ") {
			n++
		}
	}
	return n
}

// count returns the number in a line of the summary.
func count(t *testing.T, said, line string) (n int) {
	t.Helper()
	for l := range strings.Lines(said) {
		if k, err := fmt.Sscanf(l, line, &n); k == 1 && err == nil {
			return n
		}
	}
	t.Fatalf("there is no line %q in\n%s", line, said)
	return 0
}

func mustGlob(t *testing.T, pattern string) string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) != 1 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	return paths[0]
}

func TestATerminalShowsABar(t *testing.T) {
	a := setup(t)
	a.add("a.png", encoded(t, 300, 200, png.Encode))
	a.add("b.png", []byte("not a picture"))
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if _, err := run(t.Context(), a.options(), &view{out: &out, bar: true}); err != nil {
			t.Error(err)
		}
		contains(t, out.String(), clearLine+"["+strings.Repeat(".", barWidth)+"] 0 of 2",
			clearLine+"["+strings.Repeat("#", barWidth)+"] 2 of 2"+clearLine, "1 made, 1 dead")
		if strings.Contains(out.String(), "made   ") {
			t.Error("there are lines, too")
		}
	})
}

// program returns the program as a process that is yet to be started.
func (a album) program(args ...string) *exec.Cmd {
	c := exec.CommandContext(a.t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), programVar+"=1")
	c.Dir = a.dir
	return c
}

func TestCtrlCDrainsAndSaysWhatIsLeft(t *testing.T) {
	a := setup(t)
	a.add("fine.png", encoded(t, 300, 200, png.Encode))
	a.link("gone.png", filepath.Join(a.dir, "nowhere"))
	c := a.program(".")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for line := ""; triedAgain(line) == 0; {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	said, err := io.ReadAll(lines)
	if err != nil {
		t.Error(err)
	}
	if _ = c.Wait(); c.ProcessState.ExitCode() != 1 {
		t.Errorf("it ended as %v, want status 1", c.ProcessState)
	}
	contains(t, string(said), "Stopping")
	made, left := count(t, string(said), "%d made, 0 dead"), count(t, string(said), "%d are left; with -redis")
	if left == 0 || made+left != 2 {
		t.Errorf("of 2 pictures %d were made and %d left", made, left)
	}
}

func TestTheExitStatusSaysWhetherAllIsThere(t *testing.T) {
	a := setup(t)
	a.add("in/fine.png", encoded(t, 300, 200, png.Encode))
	a.add("in/text.png", []byte("not a picture"))
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"a broken picture can have no thumbnail", []string{"in"}, 0},
		{"a directory that is not there", []string{"in", "nowhere"}, 1},
		{"no pictures", []string{"-out", "in", "in"}, 1},
		{"nowhere to write", []string{"-out", "in/text.png", "in"}, 1},
		{"an unknown flag", []string{"-size", "12"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := a.program(c.args...)
			said, _ := p.CombinedOutput()
			if got := p.ProcessState.ExitCode(); got != c.status {
				t.Errorf("status %d, want %d; it said\n%s", got, c.status, said)
			}
		})
	}
}
