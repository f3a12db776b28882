-- Hands in what is finished and takes what there is to do: ends leases, makes due jobs todo, claims jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; lease ms; how many done and cancelled jobs are kept (-1: any number), how many dead ones; 1 if no
--   done or cancelled job is kept, else 0; the process' channel, or '' if it is not to be woken; the limit on jobs doing at
--   once, 0 for none; the ms between two claims that the rate asks for, 0 for none; number of finishes, of claims by workers
--   that finish nothing;
--   for each finish: worker; its lease; the rest of the lease of the job that it claims now (nonce and process), or '' if it
--     wants none; and the letter of the state asked for: d done, x dead, c cancelled, t todo, s scheduled, p parked, followed
--     by one letter for each argument that comes next: S the score (t, p: the place; s: the delay in ms * 16 + 10 - priority),
--     N the run from now on, E error, P progress, R result, W what a parked job waits for (see parking);
--   for each other claim: worker, the rest of its lease.
--   No worker stands in it twice.
-- Returns: 0; the letter of the state that each finish led to, - where the lease was lost; ms until the next look (0 at
--   once, -1 never); how many jobs were trimmed; the jobs whose deadline has passed; for each worker that got a job: its index, finishes first, the job's id (or
--   the whole lease if the worker held it already), record, run; for each of these that ran before: index, progress, error;
--   for each that has steps: index, its entry in stepped, now in ms, and its records by name, or nothing if they are to be loaded.

local bad = foreign()
if bad then return bad end
local number = tonumber(ARGV[1])
local answer, old = said(number)
if old then return old end
local leaseFor, keep, keepDead, keepNone = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local me, most, pace, finishes = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local all = finishes + tonumber(ARGV[10])
local now = clock()
local stamp, deadline = whole(now), whole(now + leaseFor)

-- Read the request: one line a worker.
local names, leases, rests, targets, extras = {}, {}, {}, {}, {}
local at, asking = 11, 0
for i = 1, finishes do
  local target = ARGV[at + 3]
  names[i], leases[i], rests[i] = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + 4
  if #target > 1 then
    local extra = {}
    for j = 2, #target do
      extra[sub(target, j, j)] = ARGV[at]
      at = at + 1
    end
    extras[i] = extra
    target = sub(target, 1, 1)
  end
  targets[i] = target
end
for i = finishes + 1, all do
  names[i], rests[i] = ARGV[at], ARGV[at + 1]
  at = at + 2
end
local repeated = answer ~= nil -- then nothing is ended or claimed again
local held = look('HMGET', workers, names)
local process = all > 0 and (leases[1] and sub(leases[1], 25) or sub(rests[1], 9)) or ''
local probe = live[probes] and call('HGET', probes, process) -- the suspect that this process runs: worker, lease
local busy = probe and call('HGET', workers, sub(probe, 1, 16)) == sub(probe, 17)
local notes = call('HMGET', meta, 'paused', 'maxrec', 'limit', 'rate', 'knower')

-- Decide where each finished job goes.
local special = live[owners] or live[deadlines] or live[probes] or live[stepped] or live[parents]
local ids, current = {}, {} -- of the leases that end here: the job, the index
local into = { d = {}, x = {}, c = {}, t = {}, s = {}, p = {} }
local newRuns, newErrors, newProgress, newResults = {}, {}, {}, {}
local erased, over = {}, {}
local noted = {} -- what parked jobs wait for: a key, its fields
local completed, ended, resting = {}, {}, {} -- jobs that are done now, dead or cancelled, waiting again
local function put(list, id, value)
  if value then
    list[#list + 1] = id
    list[#list + 1] = value
  end
end
if not repeated then
  local n = 0
  for i = 1, finishes do
    if held[i] == leases[i] then
      n = n + 1
      current[n], ids[n] = i, sub(leases[i], 1, 16)
      if busy and leases[i] == sub(probe, 17) then busy = false end
    else
      targets[i] = '-'
    end
  end
  local asked = look('ZMSCORE', cancels, ids)
  local awaits = wanted(ids, now) or {}
  local kin = keepNone and look('HMGET', parents, ids) or {} -- a child stays until its parent has its outcome
  n = 0
  for k = 1, #ids do
    local i, id = current[k], ids[k]
    local target, extra = targets[i], extras[i]
    if asked[k] and target ~= 'd' then
      target = 'c'
      targets[i] = target
    end
    local score = stamp
    if target == 'p' then
      local till, key, notes
      target, till, key, notes = parking(id, extra.W, sub(leases[i], 17, 24), now)
      targets[i] = target
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
    if keepNone and (target == 'd' or target == 'c') and not awaits[id] and not kin[k] then
      n = n + 1
      erased[n] = id
    else
      local list = into[target]
      local end_ = #list
      list[end_ + 1], list[end_ + 2] = score, id
      if extra then
        put(newRuns, id, extra.N)
        put(newErrors, id, extra.E)
        put(newProgress, id, extra.P)
        put(newResults, id, extra.R)
      end
    end
  end
  answer = table.concat(targets)
  add('HSET', runs, newRuns)
  add('HSET', errors, newErrors)
  add('HSET', progress, newProgress)
  add('HSET', results, newResults)
  add('ZADD', done, into.d)
  add('ZADD', dead, into.x)
  add('ZADD', cancelled, into.c)
  add('ZADD', scheduled, into.s)
  add('ZADD', todo, into.t)
  add('ZADD', parked, into.p)
  for k = 1, #noted do many('HSET', noted[k][1], noted[k][2]) end
  if special then mind(resting, true) end
end

-- Give back what a worker holds already; the others that ask are free.
local got, before = {}, {}
local mine, free, idle = {}, {}, {} -- indices; idle has the workers whose mapping ends
local frees = 0
for i = 1, all do
  local lease, wants = held[i], rests[i] ~= ''
  if wants then asking = asking + 1 end
  if not lease or (not repeated and lease == leases[i]) then
    if not wants then
      if lease then idle[#idle + 1] = names[i] end
    elseif not repeated then
      frees = frees + 1
      free[frees] = i
    end
  elseif wants then
    mine[#mine + 1] = i
  end
end
local given, bytes = 0, 0
local function hand(i, id, record, run)
  got[given + 1], got[given + 2], got[given + 3], got[given + 4] = i, id, record, run
  given = given + 4
end
local function leftover(i, p, e) -- what earlier attempts left: index of the claim, progress, error
  local n = #before
  before[n + 1], before[n + 2], before[n + 3] = i, p, e
end
local function fits(record, p, e) -- whether a job goes into the reply
  bytes = bytes + #record + (p and #p or 0) + (e and #e or 0)
  return bytes <= 1048576 or given == 0
end
local cut = false -- whether one did not
for k = 1, #mine do
  local i = mine[k]
  local id = sub(held[i], 1, 16)
  local record, run = call('HGET', jobs, id), call('HGET', runs, id)
  if record and run then
    local p, e = call('HGET', progress, id), call('HGET', errors, id)
    cut = not fits(record, p, e)
    if cut then break end
    hand(i, held[i], record, run)
    leftover(i, p, e)
  elseif not repeated then
    free[#free + 1] = i -- its record is gone: the reaper will see to what is left of it
  end
end

-- Make due jobs todo, at most 1,000, and find out when the next is due.
local next, promoted, soonest = repeated and 0 or -1, {}, nil
if asking > 0 and not repeated and not notes[1] then
  local first = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
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
  if #first > 0 then next = math.max(0, floor(tonumber(first[2]) / 16) - now) end
  soonest = first[1]
elseif #into.s > 0 then
  soonest = call('ZRANGE', scheduled, 0, 0)[1]
end

-- How many may be claimed: by the limit, and by the rate, whose notion of the next claim's time may lag 100 ms behind, so that
-- what a late look has missed is made up for.
local claimed, left, f = {}, 0, 1
frees = #free
local room, turn = frees, 0
if most > 0 then
  room = math.min(room, most - call('ZCARD', doing) + #ids)
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
  local peek = call('ZRANGE', todo, 0, room - 1, 'WITHSCORES')
  local waits, n = {}, #peek / 2
  for k = 1, n do waits[k] = peek[2 * k - 1] end
  if live[suspects] then
    local first = not busy and call('ZRANGE', suspects, 0, 0, 'WITHSCORES')
    if first and first[1] and (n < room or tonumber(first[2]) < tonumber(peek[2 * n])) then
      if n == room then n = n - 1 end
      n = n + 1
      suspect, waits[n], peek[2 * n] = first[1], first[1], first[2]
    end
  end
  local step = math.max(1, math.min(1000, floor(1048576 / math.max(1, tonumber(notes[2] or 1) or 1))))
  local doings, runsOf, mapped, stubs, reasons, buried = {}, {}, {}, {}, {}, {}
  local since, unlocks = ' ' .. stamp .. ' ', {}
  local from = 1
  while from <= n and not cut do
    local to = math.min(n, from + step - 1)
    local records = call('HMGET', jobs, unpack(waits, from, to))
    local old, ran, r = {}, {}, 0
    if live[runs] then
      old = call('HMGET', runs, unpack(waits, from, to))
      for k = 1, #old do
        if old[k] then ran[#ran + 1] = waits[from + k - 1] end
      end
    end
    local p, e = look('HMGET', progress, ran), look('HMGET', errors, ran)
    local limits = live[deadlines] and call('ZMSCORE', deadlines, unpack(waits, from, to)) or {}
    for k = from, to do
      local id, record, run = waits[k], records[k - from + 1], old[k - from + 1]
      local deadlineOf = limits[k - from + 1]
      if run then r = r + 1 end
      if deadlineOf and math.abs(deadlineOf) <= now then
        put(buried, stamp, id)
        put(reasons, id, 'its deadline has passed')
        if not record then put(stubs, id, stub(now)) end
        expired[#expired + 1] = id
        if live[awaited] then over[#over + 1] = id end
      elseif record and byte(record, 1, 1) == 49 then
        local i = free[f]
        local worker = names[i]
        cut = not fits(record, run and p[r], run and e[r])
        if cut then break end
        if run then
          local attempt, crashes = match(run, '^(%d+) (%d+) ')
          run = whole((tonumber(attempt) or 0) + 1) .. ' ' .. (crashes or '0') .. ' ' .. peek[2 * k] .. since .. worker
          leftover(i, p[r], e[r])
        else
          run = '1 0 ' .. peek[2 * k] .. since .. worker
        end
        hand(i, id, record, run)
        local at = 2 * f
        runsOf[at - 1], runsOf[at] = id, run
        mapped[at - 1], mapped[at] = worker, id .. rests[i]
        doings[at - 1], doings[at] = deadline, id
        f = f + 1
        if special then unlocks[#unlocks + 1] = id end
        if id == suspect then
          call('HSET', probes, process, worker .. id .. rests[i])
          busy = true
        end
      else -- quarantine
        put(buried, stamp, id)
        put(reasons, id, record and 'the record is of an unknown version' or 'the record is missing')
        if not record then put(stubs, id, stub(now)) end
        if live[awaited] then over[#over + 1] = id end
      end
      claimed[k] = id
    end
    from = to + 1
  end
  add('HSET', jobs, stubs)
  add('HSET', errors, reasons)
  add('ZADD', dead, buried)
  grow(runs, runsOf)
  grow(workers, mapped)
  add('ZADD', doing, doings)
  for k = 1, #buried, 2 do
    into.x[#into.x + 1] = buried[k + 1]
    ended[#ended + 1] = buried[k + 1]
  end
  if special then
    unlock(unlocks, 'c')
    mind(unlocks, false)
  end
end

-- A job that was given back and claimed again in this very call stays doing.
local reclaimed, undone = {}, {}
if #into.t + #into.s > 0 then
  for k = 1, given, 4 do reclaimed[sub(got[k + 1], 1, 16)] = true end
end
for k = 1, #ids do
  if not reclaimed[ids[k]] then undone[#undone + 1] = ids[k] end
end

-- What is left, for others or for the next look.
left = call('ZCARD', todo) - #claimed
if live[suspects] then
  local spare = call('ZCARD', suspects)
  if suspect and claimed[#claimed] == suspect then
    left = left + 1 -- it did not stand in todo
    spare = spare - 1
  end
  if spare > 0 and not busy then left = left + 1 end -- another could be run here
end
if pace > 0 and f > 1 then
  turn = turn + (f - 1) * pace
  call('HSET', meta, 'rate', format('%.3f', turn))
end
if not notes[1] and left > 0 then
  if most > 0 then left = math.min(left, most - call('ZCARD', doing) + #undone) end
  if pace > 0 and turn > now and left > 0 then
    local wait = math.ceil(turn - now)
    next = next < 0 and wait or math.min(next, wait)
    left = 0
    paced = true
  end
end
if cut or (left > 0 and asking > 0 and not notes[1]) then next = 0 end

-- Keep within the bounds of retention.
local function bound(state, added, count)
  if #added == 0 or count < 0 then return {} end
  local ids = outlived(state, count, -1, now)
  for i = 1, #ids do erased[#erased + 1] = ids[i] end
  return ids
end
local trimmedDone, trimmedDead = bound(done, into.d, keep), bound(dead, into.x, keepDead)
local trimmedCancelled = bound(cancelled, into.c, keep)

-- Remove.
for k = f, #free do
  if held[free[k]] then idle[#idle + 1] = names[free[k]] end
end
drop('ZREM', scheduled, promoted)
local first = #claimed -- of todo, that is; a suspect does not stand there
if suspect and claimed[first] == suspect then
  first = first - 1
  drop('ZREM', suspects, { suspect })
end
if first > 0 then call('ZREMRANGEBYRANK', todo, 0, first - 1) end
if probe and not busy then drop('HDEL', probes, { process }) end
drop('ZREM', doing, undone)
drop('HDEL', workers, idle)
drop('ZREM', cancels, ids)
if special then
  close(completed, true, now)
  close(ended, false, now)
end
trim(done, trimmedDone)
trim(dead, trimmedDead)
trim(cancelled, trimmedCancelled)
erase(erased)
tell(over, wanted(over, now))

-- Wait to be woken, or pass the word on: for what is left, or when the process that was told of the next due time, which is what
-- `knower` notes, may be busy then.
local short = #got < 4 * asking
if short and me ~= '' and (left <= 0 or notes[1]) then
  add('ZADD', waiting, { stamp, me })
  if next > 0 and notes[5] ~= me then call('HSET', meta, 'knower', me) end
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
for k = 1, live[stepped] and given or 0, 4 do handed[#handed + 1] = sub(got[k + 1], 1, 16) end
local heads = #handed > 0 and redis.pcall('HMGET', stepped, unpack(handed, 1, #handed)) or {} -- if it fails, the worker loads all
for k = 1, #handed do
  local has = heads.err and '' or heads[k]
  if has then
    local size = tonumber(match(has, '^%d+ %d+ %d+ %d+ (%d+) ')) or 65537
    carried = carried + size
    local records = size <= 65536 and carried <= 1048576 and redis.pcall('HGETALL', recordsKey(handed[k])) or false
    kept[#kept + 1] = { got[4 * k - 3], has, stamp, records and not records.err and records }
  end
end
say(number, answer)
return { 0, answer, next, #trimmedDone + #trimmedDead + #trimmedCancelled, expired, got, before, kept }
