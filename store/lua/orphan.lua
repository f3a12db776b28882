-- Tells whether a child still has its parent.
-- KEYS: the instance's, that of the child.
-- ARGV: the child.
-- Returns: 0; 1 if so, else 0.

local bad = foreign()
if bad then return bad end
return { 0, call('HEXISTS', parents, ARGV[1]) }
