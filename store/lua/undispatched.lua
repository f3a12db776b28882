-- Notes that ticks could not be dispatched. They stay to be decided.
-- KEYS: for each tick the records of its entry.
-- ARGV: the node that failed, the error; for each tick: itself in ms.
-- Returns: 0; now in ms; for each tick 1 if this is the first time, else 0.

local types = {}
for i = 1, #KEYS do types[i] = ZSET end
local bad = foreign(types)
if bad then return bad end
local now, firsts = clock(), {}
for i = 1, #KEYS do
  local tick = ARGV[2 + i]
  local some = live[KEYS[i]] and call('ZRANGE', KEYS[i], tick, tick, 'BYSCORE', 'LIMIT', 0, 100) or {}
  local new, old = 1, nil
  for k = 1, #some do
    local letter = sub(some[k], 1, 1)
    if letter == 'f' then old = some[k] end
    if letter ~= 'h' then new = 0 end
  end
  if new == 1 or old then
    local record = decided('f', tick, tick, now, ARGV[1], '', ARGV[2])
    add('ZADD', KEYS[i], { tick, record })
    if old and old ~= record then drop('ZREM', KEYS[i], { old }) end
  end
  firsts[i] = new
end
return { 0, whole(now), firsts }
