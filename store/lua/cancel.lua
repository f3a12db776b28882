-- Cancels jobs: at once unless they are doing; then their process is told and the request is kept until the job has ended.
-- KEYS: the instance's.
-- ARGV: the ids.
-- Returns: 0; for each id the state that the job was in (0: no such job, -1: in none); how many of them have left somebody to be told.

local bad = foreign()
if bad then return bad end
local now = clock()
local stamp = whole(now)
local out, gone, from, asked = {}, {}, {}, {}
for i = 1, #ARGV do
  local id = ARGV[i]
  local state, set = whereabouts(id)
  local known = call('HEXISTS', jobs, id) == 1
  if known and state == 3 then
    asked[#asked + 1] = stamp
    asked[#asked + 1] = id
    local _, lease = holderOf(id)
    publish(channel('process', sub(lease, 25)), 'cancel ' .. id)
  elseif known and state and state < 5 then
    gone[#gone + 1] = stamp
    gone[#gone + 1] = id
    from[set] = from[set] or {}
    from[set][#from[set] + 1] = id
  end
  out[i] = known and (state or -1) or 0
end
add('ZADD', cancels, asked)
add('ZADD', cancelled, gone)
local ids = {}
for i = 2, #gone, 2 do ids[#ids + 1] = gone[i] end
tell(ids, wanted(ids, now))
for set, some in pairs(from) do drop('ZREM', set, some) end
close(ids, false, now)
return { 0, out, tasks }
