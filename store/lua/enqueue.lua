-- Accepts jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; number of jobs; number of arguments a job: 4, or 6 if one has any of the last two; for each job: id, record
--   less its first 30 bytes (version, time, place), 10 - priority, when to run (0 for now, a time in ms, or a delay in ms with a minus
--   before it), its deadline in ms or '', its mode of uniqueness and key or '' (w, for a window, is followed by its ms and a
--   space).
-- Returns: 0; a letter for each job: a accepted, e there is one with this id, u another has its key; followed, for each u,
--   by the other's id; 1 if the instance may be new, else 0.

local bad = foreign()
if bad then return bad end
local number, n, width = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, late = said(number)
if late then return late end
if answer then
  say(number, answer) -- a write, so that replicas are waited for that may not have the first
  return { 0, answer, 1 } -- whoever asks again may not have made the instance known
end
local now = clock()

local asked = {}
for i = 1, n do asked[i] = ARGV[width * (i - 1) + 4] end
local there = look('HMGET', jobs, asked)

local letters, others, seen = {}, {}, {}
local ids, bodies, ranks, times, limits, k = {}, {}, {}, {}, {}, 0
local newLocks, newOwners, newWindows, ended, taken = {}, {}, {}, {}, {}
for i = 1, n do
  local at = width * (i - 1) + 4
  local id = asked[i]
  local by, unique = width > 4 and ARGV[at + 4] or '', width > 4 and ARGV[at + 5] or ''
  local mode, window, key, other = sub(unique, 1, 1), '', sub(unique, 2), nil
  if mode == 'w' then window, key = match(key, '^(%d+) (.*)$') end
  if mode ~= '' then other = taken[key] or holder(key, id, now) end
  if there[i] or seen[id] then
    letters[i] = 'e'
  elseif other then
    letters[i] = 'u'
    others[#others + 1] = other
  else
    letters[i] = 'a'
    seen[id] = true
    if mode ~= '' then
      taken[key] = id
      local ends = ''
      if mode == 'w' then
        ends = whole(now + tonumber(window))
        newWindows[#newWindows + 1] = ends
        newWindows[#newWindows + 1] = key
      else
        ended[#ended + 1] = key -- no longer a window's
        newOwners[#newOwners + 1] = id
        newOwners[#newOwners + 1] = mode .. key
      end
      newLocks[#newLocks + 1] = key
      newLocks[#newLocks + 1] = mode .. id .. ends
    end
    k = k + 1
    ids[k], bodies[k], ranks[k], times[k], limits[k] = id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], by
  end
end
add('HSET', locks, newLocks)
add('HSET', owners, newOwners)
add('ZADD', windows, newWindows)
local fresh = accept(now, ids, bodies, ranks, times, limits)
drop('ZREM', windows, ended)
answer = table.concat(letters) .. table.concat(others)
say(number, answer)
return { 0, answer, fresh }
