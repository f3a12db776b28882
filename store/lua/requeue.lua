-- Makes jobs that have ended todo again: attempts and crashes from zero, a new place, no deadline, the end's traces removed, the
-- key of uniqueness taken again.
-- KEYS: the instance's.
-- ARGV: the ids.
-- Returns: 0; for each id: the state that the job was in (0: no such job) and the id of another that has its key, else nothing.
--   Only what was done, dead or cancelled (5 to 7), with its key free, is requeued.

local bad = foreign()
if bad then return bad end
local paused, now = call('HGET', meta, 'paused'), clock()
local out, places, back, from, newLocks, keys, ended = {}, {}, {}, {}, {}, {}, {}
for i = 1, #ARGV do
  local id = ARGV[i]
  local state, set = whereabouts(id)
  local known = call('HEXISTS', jobs, id) == 1
  local owned = known and live[owners] and call('HGET', owners, id)
  local key = owned and sub(owned, 2)
  local other = key and state and state >= 5 and (keys[key] or holder(key, id, now))
  if known and state and state >= 5 and not other then
    if key then
      keys[key] = id
      ended[#ended + 1] = key -- no longer a window's
      newLocks[#newLocks + 1] = key
      newLocks[#newLocks + 1] = sub(owned, 1, 1) .. id
    end
    places[#places + 1] = whole(rankOf(id) * TOP + reserve(1, now))
    places[#places + 1] = id
    back[#back + 1] = id
    from[set] = from[set] or {}
    from[set][#from[set] + 1] = id
  end
  out[2 * i - 1] = known and (state or -1) or 0
  out[2 * i] = other or ''
end
add('ZADD', todo, places)
add('HSET', locks, newLocks)
for set, ids in pairs(from) do drop('ZREM', set, ids) end
local resumed = {} -- so that the next claim hands the progress over, and is known not to be the first
for i = 1, #back do
  resumed[2 * i - 1] = back[i]
  resumed[2 * i] = '0 0 0 0 ' .. string.rep('\0', 16)
end
add('HSET', runs, resumed)
drop('HDEL', errors, back)
drop('HDEL', results, back)
drop('ZREM', deadlines, back)
drop('ZREM', windows, ended)
if not paused then wake(#back) end
return { 0, out }
