-- Lists children that are open, in the order of their parents' ids.
-- KEYS: the instance's.
-- ARGV: the last one of the page before, or ''; how many at most.
-- Returns: 0; the entries of children.

local bad = foreign()
if bad then return bad end
local from = ARGV[1] == '' and '-' or '(' .. ARGV[1]
return { 0, live[children] and call('ZRANGEBYLEX', children, from, '+', 'LIMIT', 0, ARGV[2]) or {} }
