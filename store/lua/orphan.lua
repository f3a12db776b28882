-- Tells whether a child lives by itself: it runs, and its parent has let it go. Who claimed it before, and was held up, may ask when it has
-- long ended.
-- KEYS: the instance's, that of the child.
-- ARGV: the child.
-- Returns: 0; 1 if so, else 0.

local bad = foreign()
if bad then return bad end
return { 0, holderOf(ARGV[1]) and call('HEXISTS', parents, ARGV[1]) == 0 and 1 or 0 }
