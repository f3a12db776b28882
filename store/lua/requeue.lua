-- Makes jobs that have ended todo again: attempts and crashes from zero, a new place, no deadline, the end's traces removed, the
-- key of uniqueness taken again. Of their steps those that failed are dropped, and those that are open, whose children are to be
-- cancelled, unless they were let go; by the mode all, or those from one on.
-- KEYS: the instance's.
-- ARGV: r resume, f afresh, s and a name: from that step on; the ids.
-- Returns: 0; for each id, until their steps are 10,000 or have 4 MiB: the state that the job was in (0: no such job) and the id of another that has its key, else nothing;
--   the state -5 is a job whose steps' key, which follows with its type, is foreign, -3 a child, -4 a job without that step; how many of them leave children behind.
--   Only what was done, dead or cancelled (5 to 7), with its key free, is requeued.

local bad = foreign()
if bad then return bad end
local paused, now = call('HGET', meta, 'paused'), clock()
local out, places, back, from, newLocks, keys, ended = {}, {}, {}, {}, {}, {}, {}
local firsts, nobody = {}, string.rep('\0', 16) -- records of jobs that never ran: their places count no longer
local mode, cut = sub(ARGV[1], 1, 1), sub(ARGV[1], 2)

-- The steps that a job loses, and its head without them; -4 if it has not the one from which on.
local function lose(id)
  local h, key = head(id), recordsKey(id)
  if not h and mode == 'r' then return end
  if not h and mode == 's' then return -4 end
  h = h or { 0, 0, 0, 0, 0, 0, 0 } -- what ran of it and was not committed is to run afresh as well
  local cursor, names, size, lost = '0', {}, {}, 0
  local from = mode == 'f' and 0 or mode == 's' and tonumber(match(call('HGET', key, cut) or '', '^%a(%d+) ') or -4) or nil
  if from == -4 then return -4 end
  for _ = 1, 100000 do -- it ends by itself: a bound for the sake of the server
    local page = call('HSCAN', key, cursor, 'COUNT', 1000)
    for k = 1, #page[2], 2 do
      local name, record = page[2][k], page[2][k + 1]
      local letter, seq = match(record, '^(%a)(%d+) ')
      if sub(name, 1, 1) == '\1' then
        names[#names + 1] = name
      elseif not seq or letter == 'd' or letter == 'e' or letter == 'f' or (from and tonumber(seq) >= from) then
        if not size[name] then
          lost = lost + 1
          h[5] = h[5] - #name - #record
        end
        size[name] = true
        names[#names + 1] = name
      end
    end
    cursor = page[1]
    if cursor == '0' then break end
  end
  h[4], h[7] = math.max(0, h[4] - lost), 0
  h[1] = h[1] + 1 -- always: what is still to be cancelled is of the old generation
  if mode ~= 'r' then h[2] = h[2] + 1 end
  return { id, key, names, headed(h) }
end

local less, records, size = {}, 0, 0
for i = 2, #ARGV do
  local id = ARGV[i]
  local h = head(id)
  if h then
    records, size = records + h[4], size + h[5]
    if i > 2 and (records > 10000 or size > 4194304) then break end -- the rest is for another call
  end
  local state, set = whereabouts(id)
  local known = call('HEXISTS', jobs, id) == 1
  local owned = known and live[owners] and call('HGET', owners, id)
  local key = owned and sub(owned, 2)
  local other = key and state and state >= 5 and (keys[key] or holder(key, id, now))
  local loses
  if known and state and state >= 5 and not other then
    local _, wrong = recordsOf(id)
    if wrong then
      loses, other = -5, wrong[2] .. '\n' .. wrong[3]
    elseif live[parents] and call('HEXISTS', parents, id) == 1 then
      loses = -3
    else
      loses = lose(id)
    end
    if type(loses) == 'number' then
      known, state = true, loses
    elseif loses then
      less[#less + 1] = loses
    end
  end
  if known and state and state >= 5 and not other then
    if key then
      keys[key] = id
      ended[#ended + 1] = key -- no longer a window's
      newLocks[#newLocks + 1] = key
      newLocks[#newLocks + 1] = sub(owned, 1, 1) .. id
    end
    local rank, record = rankOf(id)
    if record and byte(record, 1) == 49 and #record <= SHORT then
      firsts[#firsts + 1] = id
      firsts[#firsts + 1] = '20000000000000' .. nobody .. sub(record, 2)
    end
    places[#places + 1] = whole(rank * TOP + reserve(1, now))
    places[#places + 1] = id
    back[#back + 1] = id
    from[set] = from[set] or {}
    from[set][#from[set] + 1] = id
  end
  out[2 * i - 3] = known and (state or -1) or 0
  out[2 * i - 2] = other or ''
end
add('HSET', jobs, firsts)
add('ZADD', todo, places)
add('HSET', locks, newLocks)
for set, ids in pairs(from) do drop('ZREM', set, ids) end
stray(back, 'c', now)
for i = 1, #less do
  call('HSET', stepped, less[i][1], less[i][4])
  for k = 1, #less[i][3], 2000 do redis.pcall('HDEL', less[i][2], unpack(less[i][3], k, math.min(k + 1999, #less[i][3]))) end
end
local afresh = {} -- so that the next claim hands progress and steps over
for i = 1, #back do
  afresh[2 * i - 1] = back[i]
  afresh[2 * i] = '0 0 0 0 ' .. nobody
end
grow(runs, afresh)
drop('HDEL', errors, back)
drop('HDEL', results, back)
drop('ZREM', deadlines, back)
drop('ZREM', windows, ended)
if not paused then wake(#back) end
return { 0, out, tasks }
