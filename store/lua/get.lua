-- Reads one job.
-- KEYS: the instance's.
-- ARGV: id.
-- Returns: 0, and if there is such a job: its state as a number in the order of a life (scheduled 1 ... cancelled 7; 0: none), its
--   score there, record, run, error, progress, result.

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
local record = call('HGET', jobs, id)
if not record then return { 0 } end
local state, _, score = whereabouts(id)
return { 0, state or 0, score or '0', record, runOf(id, record), call('HGET', errors, id), call('HGET', progress, id),
  call('HGET', results, id) }
