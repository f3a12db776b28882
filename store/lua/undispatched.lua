-- Notes that ticks could not be dispatched. They stay to be decided.
-- KEYS: for each tick the records of its entry.
-- ARGV: the node that failed, the error; for each tick: itself in ms; for how many ms records are kept, and how many.
-- Returns: 0; now in ms; for each tick 1 if this is the first time, else 0, or the type of its key if that is foreign.

for i = 1, #KEYS do kinds[i] = ZSET end
local now, firsts = clock(), {}
for i = 1, #KEYS do
  local records, tick, wrong = KEYS[i], ARGV[3 * i], check(i, i)
  if wrong then
    firsts[i] = wrong[3]
  else
    local was, old = standing(records, tick)
    if not was or was == 'f' then
      local record = decided('f', tick, tick, now, ARGV[1], '', ARGV[2])
      add('ZADD', records, { tick, record })
      if old and old ~= record then drop('ZREM', records, { old }) end
      bound(records, tonumber(ARGV[3 * i + 1]), tonumber(ARGV[3 * i + 2]), now)
    end
    firsts[i] = was and 0 or 1
  end
end
return { 0, whole(now), firsts }
