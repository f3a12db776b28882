-- Accepts jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; number of jobs; 10 - priority of those that say nothing else; 0 if each id was made for its job, so that nobody
--   else can have it, 1 if one may be known, 2 if one stands in it twice; for each job: its id, its record less the first 30 bytes
--   (version, time, place); for each detail: the number of its job, a letter, a value: P 10 - priority, T when to run (a time in ms, or a
--   delay in ms with a minus before it), D the deadline in ms, U the mode of uniqueness and the key (w, for a window, is followed by
--   its ms and a space), K where the outcome of a child is to go.
-- Returns: 0; a letter for each job: a accepted, e there is one with this id, u another has its key; followed, for each u,
--   by the other's id; 1 if the instance may be new, else 0.

local bad = foreign()
if bad then return bad end
local number, n, rank = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local answer, late = said(number)
if late then return late end
if answer then return { 0, answer, 1 } end -- whoever asks again may not have made the instance known
local now = clock()

local records, refused, others, ended = { unpack(ARGV, 5, 4 + 2 * n) }, {}, {}, {}
local ranks, times, limits -- of those that are accepted, if there are details

-- What can't be accepted is taken out of records, and the details are read. An id that was made for its job can only be there if this very
-- request came before, which the lane knows: but for its first one, and if it was forgotten.
if ARGV[4] ~= '0' or not live[lane] or #ARGV > 4 + 2 * n then
  ranks, times, limits = {}, {}, {}
  local newLocks, newOwners, newWindows, newParents = {}, {}, {}, {}
  local asked, k = {}, 0
  for i = 1, n do asked[i] = records[2 * i - 1] end
  local there = look('HMGET', jobs, asked)
  local details = { P = {}, T = {}, D = {}, U = {}, K = {} }
  for at = 5 + 2 * n, #ARGV, 3 do details[ARGV[at + 1]][tonumber(ARGV[at])] = ARGV[at + 2] end
  local owed = next(details.K) and look('HMGET', outbox, asked) or {} -- a child that has ended, and whose parent does not know yet
  local seen, taken = ARGV[4] == '2' and {}, {}
  for i = 1, n do
    local id, unique = asked[i], details.U[i]
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
      records[2 * k - 1], records[2 * k] = id, records[2 * i]
      ranks[k], times[k], limits[k] = details.P[i], details.T[i], details.D[i]
      if details.K[i] then
        newParents[#newParents + 1] = id
        newParents[#newParents + 1] = details.K[i]
      end
    end
  end
  for i = 2 * n, 2 * k + 1, -1 do records[i] = nil end
  if live[stepped] then
    local accepted = {}
    for i = 1, k do accepted[i] = records[2 * i - 1] end
    vacate(accepted)
  end
  add('HSET', locks, newLocks)
  add('HSET', owners, newOwners)
  add('ZADD', windows, newWindows)
  add('HSET', parents, newParents)
end
local fresh = accept(now, records, rank, ranks, times, limits)
drop('ZREM', windows, ended)
answer = amended(string.rep('a', n), refused) .. table.concat(others)
say(number, answer)
return { 0, answer, fresh }
