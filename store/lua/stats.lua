-- Counts the jobs of an instance, in a time that does not depend on how many there are.
-- KEYS: the instance's.
-- Returns: 0; records; jobs in each state (scheduled ... cancelled); 1 if paused, else 0; since when the oldest job is todo, in ms
--   before now (0 if there is none).

local bad = foreign()
if bad then return bad end
local now, oldest = clock(), nil
for _, set in ipairs({ todo, suspects }) do
  for p = 0, 9 do
    local first = call('ZRANGE', set, whole(p * TOP), '(' .. whole((p + 1) * TOP), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if #first > 0 then
      local at = since(set, first[2])
      if not oldest or at < oldest then oldest = at end
    end
  end
end
local counts = {}
for i = 1, 7 do counts[i] = call('ZCARD', sets[i]) end
counts[2] = counts[2] + call('ZCARD', suspects)
return { 0, call('HLEN', jobs), counts, call('HGET', meta, 'paused') and 1 or 0, oldest and math.max(0, now - oldest) or 0 }
