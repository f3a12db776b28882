-- Reads entries of cron, unless nothing has changed.
-- KEYS: cron, cron_ticks.
-- ARGV: the number of changes that is known, or ''; the entries' keys.
-- Returns: 0; now in ms; the number of changes; unless it is the known one, for each entry its definition and its state, '' and '' if there is none.

local bad = foreign({ HASH, HASH })
if bad then return bad end
local changes = live[KEYS[2]] and call('HGET', KEYS[2], '') or ''
local all = {}
if changes ~= ARGV[1] or changes == '' then
  for i = 2, #ARGV do
    local n = #all
    all[n + 1] = live[KEYS[1]] and call('HGET', KEYS[1], ARGV[i]) or ''
    all[n + 2] = live[KEYS[2]] and call('HGET', KEYS[2], ARGV[i]) or ''
  end
end
return { 0, whole(clock()), changes, all }
