-- Hands in what is finished and takes what there is to do: ends leases, makes due jobs todo, claims jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; lease ms; how many done and cancelled jobs are kept (-1: any number), how many dead ones; 1 if no
--   done or cancelled job is kept, else 0; the process' channel, or '' if it is not to be woken; number of finishes, of claims;
--   for each finish: worker, its lease, and the letter of the state asked for: d done, x dead, c cancelled, t todo,
--     s scheduled, followed by one letter for each argument that comes next: S the score (t: the place; s: the delay in
--     ms * 16 + 10 - priority), N the run from now on, E error, P progress, R result;
--   for each claim: worker, the rest of its lease (nonce and process).
-- Returns: 0; the letter of the state that each finish led to, - where the lease was lost; ms until the next look (0 at
--   once, -1 never); how many jobs were trimmed; for each claim that got a job: its index, the job's id (or the whole
--   lease if the worker held it already), record, run; for each of these that ran before: its index, progress, error.

local bad = foreign()
if bad then return bad end
local number = tonumber(ARGV[1])
local answer, late = said(number)
if late then return late end
local leaseFor, keep, keepDead, keepNone = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local me, finishes, claims = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local now = clock()
local stamp = whole(now)

-- Read the request.
local names, leases, targets, extras, rests = {}, {}, {}, {}, {}
local at = 9
for i = 1, finishes do
  local target = ARGV[at + 2]
  names[i], leases[i] = ARGV[at], ARGV[at + 1]
  at = at + 3
  if #target > 1 then
    local extra = {}
    for j = 2, #target do
      extra[string.sub(target, j, j)] = ARGV[at]
      at = at + 1
    end
    extras[i] = extra
    target = string.sub(target, 1, 1)
  end
  targets[i] = target
end
for i = 1, claims do
  names[finishes + i], rests[i] = ARGV[at], ARGV[at + 1]
  at = at + 2
end
local repeated = answer ~= nil -- then nothing is ended or claimed again
local held = look('HMGET', workers, names)
local notes = call('HMGET', meta, 'paused', 'maxrec')

-- Decide where each finished job goes.
local ids, current, ended = {}, {}, {} -- of the leases that end here; `ended` has the leases themselves
local into = { d = {}, x = {}, c = {}, t = {}, s = {} }
local newRuns, newErrors, newProgress, newResults = {}, {}, {}, {}
local erased, over, freed = {}, {}, {}
local function put(list, id, value)
  if value then
    list[#list + 1] = id
    list[#list + 1] = value
  end
end
if not repeated then
  for i = 1, finishes do
    if held[i] == leases[i] and not ended[leases[i]] then
      ended[leases[i]] = true
      current[#current + 1] = i
      ids[#ids + 1] = string.sub(leases[i], 1, 16)
    else
      targets[i] = '-'
    end
  end
  local asked = look('ZMSCORE', cancels, ids)
  local awaits = wanted(ids, now) or {}
  for k = 1, #ids do
    local i, id = current[k], ids[k]
    local target, extra = targets[i], extras[i]
    if asked[k] and target ~= 'd' then
      target = 'c'
      targets[i] = target
    end
    local score = stamp
    if target == 't' then
      score = extra.S
    elseif target == 's' then
      score = whole(now * 16 + tonumber(extra.S))
    elseif awaits[id] then
      over[#over + 1] = id
    end
    if keepNone and (target == 'd' or target == 'c') and not awaits[id] then
      erased[#erased + 1] = id
    else
      local list = into[target]
      list[#list + 1] = score
      list[#list + 1] = id
      if extra then
        put(newRuns, id, extra.N)
        put(newErrors, id, extra.E)
        put(newProgress, id, extra.P)
        put(newResults, id, extra.R)
      end
    end
    freed[names[i]] = true
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
end

-- Give back what a worker holds already; the others are free.
local got, before, free = {}, {}, {}
local mine = {}
for i = 1, claims do
  local lease = held[finishes + i]
  if lease and not ended[lease] then
    mine[#mine + 1] = i
  elseif not repeated then
    free[#free + 1] = i
  end
end
local function hand(i, id, record, run)
  local n = #got
  got[n + 1], got[n + 2], got[n + 3], got[n + 4] = i, id, record, run
end
local function leftover(which, these) -- what earlier attempts left: {index of the claim, progress, error}
  local p, e = look('HMGET', progress, these), look('HMGET', errors, these)
  for k = 1, #these do
    local n = #before
    before[n + 1], before[n + 2], before[n + 3] = which[k], p[k], e[k]
  end
end
if #mine > 0 then
  local these = {}
  for k = 1, #mine do these[k] = string.sub(held[finishes + mine[k]], 1, 16) end
  local records, runsOf = look('HMGET', jobs, these), look('HMGET', runs, these)
  for k = 1, #mine do
    local i = mine[k]
    if records[k] and runsOf[k] then
      hand(i, held[finishes + i], records[k], runsOf[k])
      freed[names[finishes + i]] = nil
    elseif not repeated then
      free[#free + 1] = i -- its record is gone: the reaper will see to what is left of it
    end
  end
  leftover(mine, these)
end

-- Make due jobs todo, at most 1,000, and find out when the next is due.
local next, promoted = repeated and 0 or -1, {}
if claims > 0 and not repeated and not notes[1] then
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
  if #first > 0 then next = math.max(0, math.floor(tonumber(first[2]) / 16) - now) end
end

-- Claim for the free workers, in the order of places, until the reply has 1 MiB.
local claimed, left = {}, 0
if #free > 0 and not notes[1] then
  local peek = call('ZRANGE', todo, 0, #free - 1, 'WITHSCORES')
  local waits = {}
  for i = 1, #peek, 2 do waits[#waits + 1] = peek[i] end
  local n, bytes, f = #waits, 0, 1
  local step = math.max(1, math.min(1000, math.floor(1048576 / math.max(1, tonumber(notes[2] or 1) or 1))))
  local doings, runsOf, mapped, stubs, reasons, buried = {}, {}, {}, {}, {}, {}
  local again, ran = {}, {}
  local from = 1
  while from <= n and bytes < 1048576 do
    local to = math.min(n, from + step - 1)
    local records = call('HMGET', jobs, unpack(waits, from, to))
    local old = live[runs] and call('HMGET', runs, unpack(waits, from, to)) or {}
    for k = from, to do
      local id, record, run = waits[k], records[k - from + 1], old[k - from + 1]
      claimed[#claimed + 1] = id
      if record and string.byte(record) == 49 then
        local i = free[f]
        local worker = names[finishes + i]
        f = f + 1
        if run then
          local attempt, crashes = string.match(run, '^(%d+) (%d+) ')
          run = whole((tonumber(attempt) or 0) + 1) .. ' ' .. (crashes or '0') .. ' ' .. peek[2 * k] .. ' ' .. stamp .. ' ' .. worker
          again[#again + 1], ran[#ran + 1] = i, id
        else
          run = '1 0 ' .. peek[2 * k] .. ' ' .. stamp .. ' ' .. worker
        end
        bytes = bytes + #record
        hand(i, id, record, run)
        put(runsOf, id, run)
        put(mapped, worker, id .. rests[i])
        put(doings, whole(now + leaseFor), id)
        freed[worker] = nil
      else -- quarantine
        put(buried, stamp, id)
        put(reasons, id, record and 'the record is of an unknown version' or 'the record is missing')
        if not record then put(stubs, id, '1' .. stamp .. '5' .. '\0' .. 'null') end
        if live[awaited] then over[#over + 1] = id end
      end
    end
    from = to + 1
  end
  leftover(again, ran)
  add('HSET', jobs, stubs)
  add('HSET', errors, reasons)
  add('ZADD', dead, buried)
  add('HSET', runs, runsOf)
  add('HSET', workers, mapped)
  add('ZADD', doing, doings)
  for k = 1, #buried, 2 do into.x[#into.x + 1] = buried[k + 1] end
  left = call('ZCARD', todo) - #claimed
  if left > 0 then next = 0 end
elseif #into.t > 0 then
  left = #into.t / 2
end

-- Keep within the bounds of retention.
local function bound(state, added, count)
  if #added == 0 or count < 0 then return {} end
  local ids = outlived(state, count, -1, now)
  for i = 1, #ids do erased[#erased + 1] = ids[i] end
  return ids
end
local trimmedDone, trimmedDead = bound(done, into.d, keep), bound(dead, into.x, keepDead)
local trimmedCancelled = bound(cancelled, into.c, keep)

-- Remove. A job that was given back and claimed again in this very call stays doing.
local reclaimed = {}
if #into.t + #into.s > 0 then
  for k = 1, #claimed do reclaimed[claimed[k]] = true end
end
local undone, idle = {}, {}
for k = 1, #ids do
  if not reclaimed[ids[k]] then undone[#undone + 1] = ids[k] end
end
for worker in pairs(freed) do idle[#idle + 1] = worker end
drop('ZREM', scheduled, promoted)
drop('ZREM', todo, claimed)
drop('ZREM', doing, undone)
drop('HDEL', workers, idle)
drop('ZREM', cancels, ids)
drop('ZREM', done, trimmedDone)
drop('ZREM', dead, trimmedDead)
drop('ZREM', cancelled, trimmedCancelled)
erase(erased)
tell(over, wanted(over, now))

-- Wait to be woken, or pass the word on: for what is left, or when the next due time is one of ours.
local short = #got < 4 * claims
if me ~= '' and claims > 0 then
  if short and left <= 0 then
    add('ZADD', waiting, { stamp, me })
  elseif not short then
    drop('ZREM', waiting, { me })
  end
end
if not notes[1] then
  if left > 0 then
    wake(left)
  elseif not short and #into.s > 0 then
    wake(1)
  end
end
say(number, answer)
return { 0, answer, next, #trimmedDone + #trimmedDead + #trimmedCancelled, got, before }
