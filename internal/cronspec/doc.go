// Package cronspec knows when a cron line fires.
//
// The text is taken apart by a library, field by field, so that an error can name the field and where it stands. When it fires
// is decided here: the line is evaluated on the clock on the wall, without any zone, and what that gives is mapped to instants
// by one rule, which [Spec.Next] states.
package cronspec
