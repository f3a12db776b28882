-- Notes that ticks could not be dispatched. They stay to be decided.
-- KEYS: cron_ticks; for each tick the records of its entry.
-- ARGV: the node that failed, the error; for each tick: its entry's key; the fingerprint of its definition; itself in ms; for how many
--   ms records are kept, and how many.
-- Returns: 0; now in ms; for each tick 1 if this is the first time, else 0, or the type of its key if that is foreign. It is 0 if the tick
--   is not to be decided any more: its entry was removed, disabled or changed, or others have decided it. Where cron_ticks is foreign nobody
--   knows, and it is noted.

kinds[1] = HASH
for i = 2, #KEYS do kinds[i] = ZSET end
local unknown = check(1, 1)
local now, firsts = clock(), {}

local function open(key, rev, tick)
  local state = live[KEYS[1]] and call('HGET', KEYS[1], key)
  local on, high, is = match(state or '', '^(%d) (%d+) %d+ (%x+) ')
  high = tonumber(high or 0)
  return on == '1' and is == rev and (high < tonumber(tick) or high > now + AHEAD)
end

for i = 2, #KEYS do
  local at, records = 5 * i - 7, KEYS[i]
  local tick, wrong = ARGV[at + 2], check(i, i)
  firsts[i - 1] = 0
  if wrong then
    firsts[i - 1] = wrong[3]
  elseif unknown or open(ARGV[at], ARGV[at + 1], tick) then
    local was, old = standing(records, tick, now)
    if not was or was == 'f' then
      local record = decided('f', tick, tick, now, ARGV[1], '', ARGV[2])
      add('ZADD', records, { tick, record })
      if old and old ~= record then drop('ZREM', records, { old }) end
      bound(records, tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), now, tonumber(tick))
    end
    if not was then firsts[i - 1] = 1 end
  end
end
return { 0, whole(now), firsts }
