-- Takes a process that stops off the list of those that wait, and passes on what it may have been woken for.
-- KEYS: the instance's.
-- ARGV: the process' channel.
-- Returns: 0.

local bad = foreign()
if bad then return bad end
local me = ARGV[1]
local n = call('ZCARD', todo)
if call('HGET', meta, 'paused') then n = 0 end
local others = {}
if n > 0 then
  others = call('ZRANGE', waiting, 0, math.min(n, 1000) - 1)
  local instance = match(jobs, '{(.*)}')
  for i = 1, #others do
    if others[i] ~= me then call('PUBLISH', others[i], 'wake ' .. instance) end
  end
end
others[#others + 1] = me
drop('ZREM', waiting, others)
return { 0 }
