-- Pauses or resumes the claiming of an instance.
-- KEYS: the instance's.
-- ARGV: 1 to pause, 0 to resume.
-- Returns: 0.

local bad = foreign()
if bad then return bad end
if ARGV[1] == '1' then
  call('HSET', meta, 'paused', whole(clock()))
  return { 0 }
end
local n = (call('ZCARD', todo) + call('ZCARD', suspects)) + call('ZCARD', scheduled)
if call('HGET', meta, 'paused') then
  call('HDEL', meta, 'paused')
  wake(n)
end
return { 0 }
