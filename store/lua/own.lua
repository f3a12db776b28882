-- Notes which instance each entry of cron belongs to; what an entry belongs to already stays.
-- KEYS: the global hash of entries.
-- ARGV: 1 to note it, 0 only to tell; for each entry: its key, the instance.
-- Returns: 0; for each entry the instance that it belongs to, if it is only told this one where it belongs to none.

local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'none' and kind ~= 'hash' then return { -2, KEYS[1], kind, 'hash' } end
local owners = {}
for i = 2, #ARGV, 2 do
  local owner = redis.call('HGET', KEYS[1], ARGV[i])
  if not owner then
    owner = ARGV[i + 1]
    if ARGV[1] == '1' then redis.call('HSET', KEYS[1], ARGV[i], owner) end
  end
  owners[#owners + 1] = owner
end
return { 0, owners }
