-- Forgets what children's parents need not be told, or have been told.
-- KEYS: the instance's, that of the children.
-- ARGV: 1 if they are to live on without their parents, else 0; the children.
-- Returns: 0.

local bad = foreign()
if bad then return bad end
local ids, work = {}, {}
for i = 2, #ARGV do
  ids[#ids + 1] = ARGV[i]
  work[#work + 1] = 'r' .. ARGV[i]
end
if ARGV[1] == '1' then drop('HDEL', parents, ids) end
drop('HDEL', outbox, ids)
drop('ZREM', chores, work)
return { 0 }
