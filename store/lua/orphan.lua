-- Tells whether a child lives by itself: it is there, and its parent has let it go.
-- KEYS: the instance's, that of the child.
-- ARGV: the child.
-- Returns: 0; 1 if so, else 0.

local bad = foreign()
if bad then return bad end
return { 0, call('HEXISTS', jobs, ARGV[1]) == 1 and call('HEXISTS', parents, ARGV[1]) == 0 and 1 or 0 }
