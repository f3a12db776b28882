-- Hands in what is finished and takes what there is to do: ends leases, makes due jobs todo, claims jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; lease ms; how many done and cancelled jobs are kept (-1: any number), how many dead ones; 1 if no
--   done or cancelled job is kept, else 0; the process' channel, or '' if it is not to be woken; the limit on jobs doing at
--   once, 0 for none; the ms between two claims that the rate asks for, 0 for none; 1 if no suspect is to be
--   claimed, else 0; what follows a job's id in a lease of this
--   call: nonce and process; for each finish the letter of the state asked for: d done, x dead, c cancelled, t todo, s scheduled,
--   p parked;
--   the number of workers; the workers, those that finish first, none of them twice; the leases that end; for each detail of a
--   finish: its number, a letter, a value: S the score (t, p: the place; s: the delay in ms * 16 + 10 - priority), N the run from now
--   on, E error, P progress, R result, W what a parked job waits for (see parking), L (no value) if the worker leaves: it wants no job, as the others do.
-- Returns: 0; the letter of the state that each finish led to, - where the lease was lost; ms until the next look (0 at
--   once, -1 never); how many jobs were trimmed; the jobs whose deadline has passed; the time; for each worker that held a lease
--   already: its number (finishes first), the lease, record, run, progress, error; of each job that was claimed, for the other
--   workers that want one, in their order: id, record; for each of these that ran before, or whose place is not in its record:
--   its number among them (negative if it never ran), run, progress, error; for each that has steps: its number
--   among all that were given, its entry in stepped, now in ms, and its records by name, or nothing if they are to be loaded; 1 if
--   there are suspects and the process runs none, else 0.

local bad = foreign()
if bad then return bad end
local number = ARGV[1]
local answer, old = said(number)
if old then return old end
local leaseFor, keep, keepDead, keepNone = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local me, most, pace, calm = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'
local rest, letters = ARGV[10], ARGV[11]
local all, finishes = tonumber(ARGV[12]), #letters
local now = clock()
local stamp, deadline = whole(now), whole(now + leaseFor)

-- Read the request.
local names = { unpack(ARGV, 13, 12 + all) }
local leases = { unpack(ARGV, 13 + all, 12 + all + finishes) }
local extras = {} -- the details of a finish by their letters
for at = 13 + all + finishes, #ARGV, 3 do
  local i = tonumber(ARGV[at])
  extras[i] = extras[i] or {}
  extras[i][ARGV[at + 1]] = ARGV[at + 2]
end
local repeated = answer ~= nil -- then nothing is ended or claimed again
local held = look('HMGET', workers, names)
local process = sub(rest, 9)
local probe = live[probes] and call('HGET', probes, process) -- the suspect that this process runs: worker, lease
local busy = probe and call('HGET', workers, sub(probe, 1, 16)) == sub(probe, 17)
local notes = call('HMGET', meta, 'paused', 'maxrec', 'limit', 'rate', 'knower', 'lease')

-- Give back what a worker holds already; the others that ask are free.
local mine, got, before = {}, {}, {} -- parts of the reply
local ids, current, changed = {}, {}, {} -- of the leases that end here: the job, the number; the states that are not as asked for
local free, idle = {}, {} -- the names of those that are free, and of those that hold nothing from now on
local adrift = {} -- the leases of what can't be given back, for its record, or its run, is missing
local ending, frees, asking, holding, bytes = 0, 0, 0, 0, 0
local cut = false -- whether a job was left out of the reply for its size
local function fits(record, p, e)
  bytes = bytes + #record + (p and #p or 0) + (e and #e or 0)
  cut = bytes > 1048576 and #mine + #got > 0
  return not cut
end
for i = 1, all do
  local lease, extra = held[i], extras[i]
  local wants = not (extra and extra.L)
  local freed = not repeated
  if wants then asking = asking + 1 end
  if lease and freed and lease == leases[i] then
    ending = ending + 1
    current[ending], ids[ending] = i, sub(lease, 1, 16)
    if busy and lease == sub(probe, 17) then busy = false end
    if not wants then idle[#idle + 1] = names[i] end
  else
    if i <= finishes then changed[i] = '-' end
    if lease and wants then
      local id = sub(lease, 1, 16)
      local record = call('HGET', jobs, id)
      local run = runOf(id, record)
      local p, e = call('HGET', progress, id), call('HGET', errors, id)
      if not record or not run then
        if freed then adrift[#adrift + 1] = lease end
      else
        freed = false
        if not cut and fits(record, p, e) then
          holding = holding + 1
          local n = #mine
          mine[n + 1], mine[n + 2], mine[n + 3], mine[n + 4], mine[n + 5], mine[n + 6] = i, lease, record, run, p, e
        end
      end
    end
  end
  if freed and wants then
    frees = frees + 1
    free[frees] = names[i]
  end
end

-- Decide where each finished job goes.
local special = live[owners] or live[deadlines] or live[probes] or live[stepped] or live[parents]
local into = { d = {}, x = {}, c = {}, t = {}, s = {}, p = {} }
local erased, over = {}, {}
local completed, ended, resting = {}, {}, {} -- jobs that are done now, dead or cancelled, waiting again
local culled = {} -- jobs that are dead without having been claimed
local function put(list, id, value)
  if value then
    list[#list + 1] = id
    list[#list + 1] = value
  end
end
do
  local new = { N = {}, E = {}, P = {}, R = {} } -- runs, errors, progress, results
  local noted = {} -- what parked jobs wait for: a key, its fields
  local asked, awaits = look('ZMSCORE', cancels, ids), wanted(ids, now) or {}
  if not (next(extras) or special or live[cancels] or live[awaited] or string.find(letters, '[^d]')) then -- all are just done
    for k = 1, ending do
      if keepNone then
        erased[k] = ids[k]
      else
        into.d[2 * k - 1], into.d[2 * k] = stamp, ids[k]
      end
    end
  else
    local kin = keepNone and look('HMGET', parents, ids) or {} -- a child stays until its parent has its outcome
    local heads = keepNone and live[children] and look('HMGET', stepped, ids) or {} -- a parent until its children have been seen to
    for k = 1, ending do
      local i, id = current[k], ids[k]
      local target, extra = sub(letters, i, i), extras[i] or {}
      if asked[k] and target ~= 'd' then
        target = 'c'
        changed[i] = target
      end
      local score = stamp
      if target == 'p' then
        local till, key, notes
        target, till, key, notes = parking(id, extra.W, sub(leases[i], 17, 24), now)
        if target ~= 'p' then changed[i] = target end
        if target == 'p' then
          score = till
          noted[#noted + 1] = { key, notes }
        else
          score = extra.S
        end
      elseif target == 't' then
        score = extra.S
      elseif target == 's' then
        score = whole(now * 16 + tonumber(extra.S))
      elseif awaits[id] then
        over[#over + 1] = id
      end
      if special then
        local list = target == 'd' and completed or (target == 't' or target == 's' or target == 'p') and resting or ended
        list[#list + 1] = id
      end
      if keepNone and (target == 'd' or target == 'c') and not awaits[id] and not kin[k]
        and not (heads[k] and familiar(id, heads[k])) then
        erased[#erased + 1] = id
      else
        local list = into[target]
        local n = #list
        list[n + 1], list[n + 2] = score, id
        for letter, written in pairs(new) do put(written, id, extra[letter]) end
      end
    end
  end
  if not repeated then answer = amended(letters, changed) end
  grow(runs, new.N)
  add('HSET', errors, new.E)
  add('HSET', progress, new.P)
  add('HSET', results, new.R)
  add('ZADD', done, into.d)
  add('ZADD', dead, into.x)
  add('ZADD', cancelled, into.c)
  add('ZADD', scheduled, into.s)
  add('ZADD', todo, into.t)
  add('ZADD', parked, into.p)
  for k = 1, #adrift do -- the reaper will see to them, as to what a worker holds that does not go on
    local id = sub(adrift[k], 1, 16)
    call('HSET', workers, id, adrift[k])
    call('ZADD', doing, '1', id)
  end
  for k = 1, #noted do many('HSET', noted[k][1], noted[k][2]) end
  if special then mind(resting, true) end
end

-- Make due jobs todo, at most 1,000, and find out when the next is due.
local again, promoted, soonest = repeated and 0 or -1, {}, nil
if asking > 0 and not repeated and not notes[1] then
  local first = live[scheduled] and call('ZRANGE', scheduled, 0, 0, 'WITHSCORES') or {}
  local limit = now * 16 + 15
  if #first > 0 and tonumber(first[2]) <= limit then
    local due = call('ZRANGE', scheduled, '-inf', whole(limit), 'BYSCORE', 'LIMIT', 0, 1000, 'WITHSCORES')
    local seq, places = reserve(#due / 2, now), {}
    for i = 1, #due, 2 do
      promoted[#promoted + 1] = due[i]
      places[i] = whole(tonumber(due[i + 1]) % 16 * TOP + seq)
      places[i + 1] = due[i]
      seq = seq + 1
    end
    add('ZADD', todo, places)
    first = call('ZRANGE', scheduled, #promoted, #promoted, 'WITHSCORES')
  end
  if #first > 0 then again = math.max(0, floor(tonumber(first[2]) / 16) - now) end
  soonest = first[1]
elseif #into.s > 0 then
  soonest = call('ZRANGE', scheduled, 0, 0)[1]
end

-- How many may be claimed: by the limit, and by the rate, whose notion of the next claim's time may lag 100 ms behind, so that
-- what a late look has missed is made up for.
local taken, left, f = 0, 0, 0 -- jobs taken from todo and suspects, left there, given to the free
local room, turn = frees, 0
if frees > 0 and leaseFor > (tonumber(notes[6] or 0) or 0) then -- no reaper with a shorter one may cut it
  call('HSET', meta, 'lease', whole(leaseFor), 'leased', stamp)
end
if most > 0 then
  most = most - (live[doing] or 0) + ending -- from now on: how many more there may be
  room = math.min(room, most)
  if notes[3] ~= ARGV[7] then call('HSET', meta, 'limit', ARGV[7]) end
elseif notes[3] then
  call('HDEL', meta, 'limit')
end
if pace > 0 then
  turn = math.max(tonumber(notes[4] or 0) or 0, now - 100)
  if turn > now + pace + 1 then turn = now end -- the clock has gone back, or the rate was slower
  room = math.min(room, floor((now - turn) / pace) + 1)
elseif notes[4] then
  call('HDEL', meta, 'rate')
end

-- Claim for the free workers, in the order of places, until the reply has 1 MiB.
local suspect -- a job that is suspected of crashing and may be claimed: a process runs one at a time
local expired, paced = {}, false
if room > 0 and not notes[1] then
  local waits = call('ZRANGE', todo, 0, room - 1)
  local n, its = #waits, nil -- its: the suspect's place
  if live[suspects] then
    local first = not busy and not calm and call('ZRANGE', suspects, 0, 0, 'WITHSCORES')
    if first and first[1] and (n < room or tonumber(first[2]) < tonumber(call('ZSCORE', todo, waits[n]))) then
      if n == room then n = n - 1 end
      n = n + 1
      suspect, its = first[1], first[2]
      waits[n] = suspect
    end
  end
  local step = math.max(1, math.min(1000, floor(1048576 / math.max(1, tonumber(notes[2] or 1) or 1))))
  local doings, rewritten, runsOf, mapped, reasons, buried = {}, {}, {}, {}, {}, {}
  local since, opening, unlocks = ' ' .. stamp .. ' ', '2' .. format('%013d', now), {}
  local from = 1
  while from <= n and not cut do
    local to, off = math.min(n, from + step - 1), from - 1
    local records = call('HMGET', jobs, unpack(waits, from, to))
    local places, odd = {}, {} -- odd: all but the short ones that never ran and whose place is in the record
    for k = 1, #records do
      local record = records[k] or ''
      local place = byte(record, 1) == 49 and #record <= SHORT and sub(record, 15, 30) or NOWHERE
      if place == NOWHERE then
        odd[#odd + 1] = waits[off + k]
      else
        places[k] = place
      end
    end
    local old, p, e, scores = look('HMGET', runs, odd), look('HMGET', progress, odd), look('HMGET', errors, odd), look('ZMSCORE', todo, odd)
    local limits = live[deadlines] and call('ZMSCORE', deadlines, unpack(waits, from, to)) or {}
    local r = 0
    for k = 1, #records do
      local id, record, place, limit = waits[off + k], records[k], places[k], limits[k]
      if not place then r = r + 1 end
      if limit and math.abs(limit) <= now then
        put(buried, stamp, id)
        put(reasons, id, 'its deadline has passed')
        if not record then put(rewritten, id, stub(now)) end
        expired[#expired + 1] = id
        if live[awaited] then over[#over + 1] = id end
      elseif place or record and (byte(record, 1) == 49 or byte(record, 1) == 50) then
        if place then
          bytes = bytes + #record
          if bytes > 1048576 and #mine + #got > 0 then
            cut = true
            break
          end
          local n = #rewritten
          rewritten[n + 1], rewritten[n + 2] = id, opening .. free[f + 1] .. sub(record, 2)
        else
          if not fits(record, p[r], e[r]) then break end
          local run = old[r] or ranIn(record)
          local which = run and f + 1 or -f - 1
          local attempt, crashes = match(run or '', '^(%d+) (%d+) ')
          run = whole((tonumber(attempt) or 0) + 1) .. ' ' .. (crashes or '0') .. ' ' .. whole(scores[r] or its) .. since .. free[f + 1]
          local n = #before
          before[n + 1], before[n + 2], before[n + 3], before[n + 4] = which, run, p[r], e[r]
          put(runsOf, id, run)
        end
        f = f + 1
        got[2 * f - 1], got[2 * f] = id, record
        mapped[2 * f - 1], mapped[2 * f] = free[f], id .. rest
        doings[2 * f - 1], doings[2 * f] = deadline, free[f]
        if special then unlocks[#unlocks + 1] = id end
        if id == suspect then
          call('HSET', probes, process, free[f] .. id .. rest)
          busy = true
        end
      else -- quarantine
        put(buried, stamp, id)
        put(reasons, id, record and 'the record is of an unknown version' or 'the record is missing')
        if not record then put(rewritten, id, stub(now)) end
        if live[awaited] then over[#over + 1] = id end
      end
      taken = off + k
    end
    from = to + 1
  end
  if waits[taken] ~= suspect then suspect = nil end -- it stands last, and was not reached
  add('HSET', jobs, rewritten)
  add('HSET', errors, reasons)
  add('ZADD', dead, buried)
  grow(runs, runsOf)
  grow(workers, mapped)
  if f > 0 and not live[doing] then -- in the large form, which it keeps until it is loaded again: in the small one each worker would be searched for
    call('ZADD', doing, '0', string.rep(' ', 65))
    add('ZADD', doing, doings)
    call('ZREM', doing, string.rep(' ', 65))
  else
    add('ZADD', doing, doings)
  end
  for k = 1, #buried, 2 do
    into.x[#into.x + 1] = buried[k + 1]
    culled[#culled + 1] = buried[k + 1]
  end
  if special then
    unlock(unlocks, 'c')
    mind(unlocks, false)
  end
end

-- What is left, for others or for the next look.
if suspect then taken = taken - 1 end -- of todo, from now on: it did not stand there
left = call('ZCARD', todo) - taken
local spare = 0
if live[suspects] then
  spare = call('ZCARD', suspects)
  if suspect then spare = spare - 1 end
  if busy or notes[1] then spare = 0 end
  if spare > 0 and not calm then left = left + 1 end -- another could be run here
end
if pace > 0 and f > 0 then
  turn = turn + f * pace
  call('HSET', meta, 'rate', format('%.3f', turn))
end
if all == 0 and call('ZCOUNT', scheduled, '-inf', whole(now * 16 + 15)) > 0 then
  left = math.max(left, 1) -- a wake-up that is passed on may be for what is due
end
if not notes[1] and left > 0 then
  if ARGV[7] ~= '0' then left = math.min(left, most - f) end
  if pace > 0 and turn > now and left > 0 then
    local wait = math.ceil(turn - now)
    again = again < 0 and wait or math.min(again, wait)
    left = 0
    paced = true
  end
end
if cut or (left > 0 and asking > 0 and not notes[1]) then again = 0 end

-- What the ends mean for families, keys and deadlines: before anything is trimmed, so that what is owed is known.
if special then
  close(completed, true, now, GRACE)
  close(ended, false, now, GRACE)
  close(culled, false, now)
end

-- Keep within the bounds of retention.
local function bound(state, added, count)
  if #added == 0 or count < 0 then return {} end
  local ids = outlived(state, count, -1, now, #added / 2 + 200)
  for i = 1, #ids do erased[#erased + 1] = ids[i] end
  return ids
end
local trimmedDone, trimmedDead = bound(done, into.d, keep), bound(dead, into.x, keepDead)
local trimmedCancelled = bound(cancelled, into.c, keep)

-- Remove.
for k = f + 1, frees do idle[#idle + 1] = free[k] end
drop('ZREM', scheduled, promoted)
if suspect then drop('ZREM', suspects, { suspect }) end
if taken > 0 then call('ZREMRANGEBYRANK', todo, 0, taken - 1) end
if probe and not busy then drop('HDEL', probes, { process }) end
drop('ZREM', doing, idle)
drop('HDEL', workers, idle)
drop('ZREM', cancels, ids)
trim(done, trimmedDone)
trim(dead, trimmedDead)
trim(cancelled, trimmedCancelled)
erase(erased)
tell(over, wanted(over, now))

-- Wait to be woken, or pass the word on: for what is left, or when the process that was told of the next due time, which is what
-- `knower` notes, may be busy then.
local short = f + holding < asking
if short and me ~= '' and (left <= 0 or notes[1]) then
  add('ZADD', waiting, { stamp, me })
  if again > 0 and notes[5] ~= me then call('HSET', meta, 'knower', me) end
elseif not notes[1] then
  for k = 2, #into.s, 2 do
    if into.s[k] == soonest then left = math.max(left, 1) end
  end
  if paced or (notes[5] == me and soonest) then left = math.max(left, 1) end
  if notes[5] == me then call('HDEL', meta, 'knower') end
  wake(left, not short and me ~= '' and me or nil)
end

-- The steps of what was claimed.
local kept, carried, handed = {}, 0, {}
if live[stepped] then
  for k = 1, holding do handed[k] = sub(mine[6 * k - 4], 1, 16) end
  for k = 1, f do handed[holding + k] = got[2 * k - 1] end
end
local heads = #handed > 0 and redis.pcall('HMGET', stepped, unpack(handed, 1, #handed)) or {} -- if it fails, the worker loads all
for k = 1, #handed do
  local has = heads.err and '' or heads[k]
  if has then
    local size = tonumber(match(has, '^%d+ %d+ %d+ %d+ (%d+) ')) or 65537
    carried = carried + size
    local records = size <= 65536 and carried <= 1048576 and redis.pcall('HGETALL', recordsKey(handed[k])) or false
    kept[#kept + 1] = { k, has, stamp, records and not records.err and records }
  end
end
say(number, answer)
return { 0, answer, again, #trimmedDone + #trimmedDead + #trimmedCancelled, expired, now, mine, got, before, kept,
  spare > 0 and 1 or 0 }
