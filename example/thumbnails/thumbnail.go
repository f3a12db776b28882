package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // decoded, too
	_ "image/jpeg"
	"image/png"
	"os"
	"path/filepath"

	"golang.org/x/image/draw"

	"github.com/stint-go/stint/retry"
	"github.com/stint-go/stint/store"
	"github.com/stint-go/stint/worker"
)

const (
	size      = 128        // the longest side of a thumbnail, in pixels
	maxPixels = 50_000_000 // of a picture; it takes some 8 bytes each while it is decoded
)

// task is the payload of a job. The paths are absolute: another process may do it.
type task struct {
	Picture   string `json:"picture"`
	Thumbnail string `json:"thumbnail"`
}

// stage is how far a handler has come. It is the job's progress, and tells later what a dead job has failed at.
type stage string

const (
	reading  stage = "reading"
	decoding stage = "decoding"
	writing  stage = "writing"
)

// stageOf returns the last stage of a job, empty if it has none.
func stageOf(j store.Job) (s stage) {
	_ = json.Unmarshal(j.Progress, &s)
	return s
}

// makeThumbnail is the handler. It may run more than once for a job, even twice at a time after a lease was lost, and needs
// no care for that but to write the same file in one step.
func makeThumbnail(ctx context.Context, t task) error {
	if err := worker.Progress(ctx, reading); err != nil {
		return err
	}
	file, err := os.ReadFile(t.Picture)
	if err != nil {
		return err // it may be readable later: any error that is not marked is tried again
	}
	if err := worker.Progress(ctx, decoding); err != nil {
		return err
	}
	src, err := decode(file)
	if err != nil {
		return retry.Permanent(err) // it would be the same next time
	}
	if err := worker.Progress(ctx, writing); err != nil {
		return err
	}
	return write(t.Thumbnail, shrink(src))
}

// decode refuses what would take too much memory before it takes any.
func decode(file []byte) (image.Image, error) {
	c, _, err := image.DecodeConfig(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if int64(c.Width)*int64(c.Height) > maxPixels {
		return nil, fmt.Errorf("%d x %d pixels are too many: at most %d are taken", c.Width, c.Height, maxPixels)
	}
	src, _, err := image.Decode(bytes.NewReader(file))
	if err == nil && src.Bounds().Empty() {
		err = errors.New("it has no pixels")
	}
	return src, err
}

// shrink scales a picture to fit, keeping its proportions. One that fits already stays as large as it is.
func shrink(src image.Image) image.Image {
	w, h := src.Bounds().Dx(), src.Bounds().Dy()
	if longest := max(w, h); longest > size {
		w, h = max(1, w*size/longest), max(1, h*size/longest)
	}
	dst := image.NewNRGBA(image.Rect(0, 0, w, h))
	draw.CatmullRom.Scale(dst, dst.Bounds(), src, src.Bounds(), draw.Src, nil)
	return dst
}

// write writes a file beside its place and then moves it there, so that nobody ever sees half a thumbnail.
func write(path string, img image.Image) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".unfinished-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // does nothing when it was moved
	err = errors.Join(png.Encode(f, img), f.Chmod(0o644), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
