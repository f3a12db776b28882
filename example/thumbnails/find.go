package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/stint-go/stint/store"
)

// picture is a file, its job, and what has become of it.
type picture struct {
	task    task
	id      uuid.UUID
	job     store.Job // as it was last seen
	earlier bool      // an earlier run has made its thumbnail
}

// find lists the pictures in the directories and files of o, or in the sources of Go. It creates the directory for the
// thumbnails, and does not take them for pictures.
func find(o options) ([]*picture, error) {
	out, err := filepath.Abs(o.out)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}
	if out, err = filepath.EvalSymlinks(out); err != nil {
		return nil, err
	}
	in := o.in
	if len(in) == 0 {
		root, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("asking where Go is, as no directory is given: %w", err)
		}
		in = []string{filepath.Join(strings.TrimSpace(string(root)), "src", "image")}
	}
	var paths []string
	for _, name := range in {
		if paths, err = walk(paths, name, out); err != nil {
			return nil, err
		}
	}
	slices.Sort(paths)
	var pictures []*picture
	for _, path := range slices.Compact(paths) { // the directories may overlap
		if p := newPicture(path, out); p != nil {
			pictures = append(pictures, p)
		}
	}
	if len(pictures) == 0 {
		return nil, fmt.Errorf("no pictures in %s", strings.Join(in, ", "))
	}
	return pictures, nil
}

// walk adds the paths of the pictures in a directory to paths; a file is taken whatever its name.
func walk(paths []string, name, out string) ([]string, error) {
	root, err := filepath.Abs(name)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == out:
			return fs.SkipDir
		case !d.IsDir() && (path == root || isPicture(path)):
			paths = append(paths, path)
		}
		return nil
	})
	return paths, err
}

func isPicture(path string) bool {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".png", ".jpg", ".jpeg", ".gif":
		return true
	}
	return false
}

// newPicture returns the picture at a path, or nil if that is neither a file nor anything that may become one.
//
// The thumbnail is named after the file and its whole path, so that files of one name don't share a thumbnail. The id
// stands for the file as it is now: when it has changed there is something new to do.
func newPicture(path, out string) *picture {
	hash := sha256.Sum256([]byte(path))
	thumbnail := filepath.Join(out, fmt.Sprintf("%s-%x.png", filepath.Base(path), hash[:6]))
	version := "unknown" // it can't be read right now: the job will try again
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return nil
		}
		version = fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
	}
	what := fmt.Sprintf("%s %q %q %s", instance, path, thumbnail, version)
	return &picture{
		task: task{Picture: path, Thumbnail: thumbnail},
		id:   uuid.NewSHA1(uuid.NameSpaceURL, []byte(what)),
	}
}
