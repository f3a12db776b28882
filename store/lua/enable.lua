-- Enables or disables an entry of cron. Ticks while it was disabled are nobody's.
-- KEYS: cron_ticks.
-- ARGV: the entry's key; 1 to enable it, 0 to disable it.
-- Returns: 0; 1 if there is such an entry, else 0.

local bad = foreign({ HASH })
if bad then return bad end
local key, to = ARGV[1], ARGV[2]
local state = live[KEYS[1]] and call('HGET', KEYS[1], key)
local on, high, rest = match(state or '', '^(%d) (%d+) (.*)$')
if not on then return { 0, 0 } end
if on ~= to then
  local now = clock()
  if to == '1' then high = nobodys(high, now) end
  local changes = tonumber(call('HGET', KEYS[1], '') or 0) or 0
  call('HSET', KEYS[1], key, to .. ' ' .. high .. ' ' .. rest, '', whole(math.max(changes + 1, now)))
end
return { 0, 1 }
