package cronspec

// ZoneFrom is Zone on a machine that has the zones of load.
var ZoneFrom = zone
