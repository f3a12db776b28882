-- Takes children off the list of open ones: their parents have ended.
-- KEYS: the instance's, that of the parents.
-- ARGV: the children's entries in children.
-- Returns: 0.

local bad = foreign()
if bad then return bad end
local members, work = {}, {}
for i = 1, #ARGV do
  members[i] = ARGV[i]
  work[i] = 'o' .. ARGV[i]
end
drop('ZREM', children, members)
drop('ZREM', chores, work)
return { 0 }
