-- Forgets that entries of cron belong to an instance. What belongs to another one by now stays.
-- KEYS: the global hash of entries.
-- ARGV: the instance; the entries' keys.
-- Returns: 0.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then return { -2, KEYS[1], kind, 'hash' } end
local mine = {}
for i = 2, #ARGV do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[1] then mine[#mine + 1] = ARGV[i] end
end
for i = 1, #mine do redis.call('HDEL', KEYS[1], mine[i]) end
return { 0 }
