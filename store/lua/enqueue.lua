-- Accepts jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; number of jobs; 10 - priority of those that say nothing else; 1 if an id stands in it twice, else 0; the
--   ids; the records less their first 30 bytes (version, time, place); for each detail: the number of its job, a letter, a value: P 10 -
--   priority, T when to run (a time in ms, or a delay in ms with a minus before it), D the deadline in ms, U the mode of uniqueness and
--   the key (w, for a window, is followed by its ms and a space), K where the outcome of a child is to go.
-- Returns: 0; a letter for each job: a accepted, e there is one with this id, u another has its key; followed, for each u,
--   by the other's id; 1 if the instance may be new, else 0.

local bad = foreign()
if bad then return bad end
local number, n, rank = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, late = said(number)
if late then return late end
if answer then
  say(number, answer) -- a write, so that replicas are waited for that may not have the first
  return { 0, answer, 1 } -- whoever asks again may not have made the instance known
end
local now = clock()

local asked, records = { unpack(ARGV, 5, 4 + n) }, 4 + n -- records: where they begin, less one
local there = look('HMGET', jobs, asked)
local details, detailed = { P = {}, T = {}, D = {}, U = {}, K = {} }, #ARGV > 4 + 2 * n
for at = 5 + 2 * n, #ARGV, 3 do details[ARGV[at + 1]][tonumber(ARGV[at])] = ARGV[at + 2] end

local owed = next(details.K) and look('HMGET', outbox, asked) or {} -- a child that has ended, and whose parent does not know yet
local refused, others, seen = {}, {}, ARGV[4] == '1' and {}
local ids, bodies, ranks, times, limits, k = {}, {}, {}, {}, {}, 0
local newLocks, newOwners, newWindows, newParents, ended, taken = {}, {}, {}, {}, {}, {}
for i = 1, n do
  local id, unique = asked[i], detailed and details.U[i]
  local mode, window, key, other
  if unique then
    mode, key = sub(unique, 1, 1), sub(unique, 2)
    if mode == 'w' then window, key = match(key, '^(%d+) (.*)$') end
    other = taken[key] or holder(key, id, now)
  end
  if there[i] or (seen and seen[id]) or owed[i] then
    refused[i] = 'e'
  elseif other then
    refused[i] = 'u'
    others[#others + 1] = other
  else
    if seen then seen[id] = true end
    if unique then
      taken[key] = id
      local ends = ''
      if window then
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
    ids[k], bodies[k] = id, ARGV[records + i]
    if detailed then
      ranks[k], times[k], limits[k] = details.P[i], details.T[i], details.D[i]
      if details.K[i] then
        newParents[#newParents + 1] = id
        newParents[#newParents + 1] = details.K[i]
      end
    end
  end
end
add('HSET', locks, newLocks)
add('HSET', owners, newOwners)
add('ZADD', windows, newWindows)
add('HSET', parents, newParents)
local fresh = accept(now, ids, bodies, rank, ranks, times, limits)
drop('ZREM', windows, ended)
answer = amended(string.rep('a', n), refused) .. table.concat(others)
say(number, answer)
return { 0, answer, fresh }
