-- Takes a process that stops off the list of those that wait, and passes on what it may have been woken for.
-- KEYS: the instance's.
-- ARGV: the process' channel.
-- Returns: 0.

local bad = foreign()
if bad then return bad end
local left = call('ZCARD', todo) + call('ZCARD', suspects)
if call('ZCARD', scheduled) > 0 then left = math.max(left, 1) end -- it may be the one that knows when to look
wake(call('HGET', meta, 'paused') and 0 or left, ARGV[1])
return { 0 }
