-- Ends the leases that ran out and the jobs that wait past their deadline, and removes what retention no longer keeps: at most
-- 200 of each, since all of it can come together. After a gap (no pass for over two periods, or time gone back: an outage, or a
-- jump of the clock) no lease is ended before those who hold one have had a whole lease's time to say so. Processes may have leases
-- of different lengths, while a deployment is under way: what counts here is the longest in use, which who has it notes with its
-- claims and passes.
-- KEYS: the instance's.
-- ARGV: lease ms; ms between two passes, 0 if gaps do not matter; crashes in a row at which a job is dead; of done and cancelled jobs how many are kept (-1: any
--   number) and for how many ms (-1: for ever); the same two of dead ones; the limit on jobs doing at once, 0 for none.
-- Returns: 0; ms until the next lease runs out (0: there is more to do at once, -1: none); {done, dead, cancelled jobs
--   trimmed}; records less jobs in a state; for each lease that was ended: job, worker, crashes, the letter of the state
--   that the job is in: t todo, x dead, c cancelled; the jobs whose deadline has passed; ms until there is something
--   for the sweeper, -1 if there is nothing.

local bad = foreign()
if bad then return bad end
local leaseFor, period, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local STEP = 200
local now = clock()
local stamp = whole(now)
local notes = call('HMGET', meta, 'paused', 'reaped', 'grace', 'lease', 'leased')
local paused, last, grace = notes[1], tonumber(notes[2] or 0) or 0, tonumber(notes[3] or 0) or 0
local longest, noted = tonumber(notes[4] or 0) or 0, tonumber(notes[5] or 0) or 0
local gap = now < last or (period > 0 and last > 0 and now - last > 2 * period)
if gap or noted > now then noted = now end -- who has the longest could not say so
-- Who has it notes so once a lease; when nobody has for four of them it is forgotten.
if now - noted > (leaseFor >= longest and longest or 4 * longest) then longest, noted = 0, now end
leaseFor = math.max(leaseFor, longest)
if gap and period > 0 then grace = now + leaseFor end
if grace > now + leaseFor then grace = now + leaseFor end -- time has gone back since
local names = {}
if now >= grace then names = call('ZRANGE', doing, '-inf', whole(now - 1), 'BYSCORE', 'LIMIT', 0, STEP) end
local held, holders, ids, leases = look('HMGET', workers, names), {}, {}, {} -- a worker that holds nothing after all is only dropped
local gone, ranOf = {}, {} -- workers whose mapping ends; what is known of the runs
for i = 1, #names do
  if held[i] then
    local id = sub(held[i], 1, 16)
    local ran = runOf(id) or ''
    local other = match(ran, '^%d+ %d+ %d+ %d+ (.*)$')
    gone[#gone + 1] = names[i]
    if not other or other == names[i] or sub(call('HGET', workers, other) or '', 1, 16) ~= id then -- else another holds it, since then
      holders[#holders + 1], leases[#leases + 1], ids[#ids + 1], ranOf[#ranOf + 1] = names[i], held[i], id, ran
    end
  end
end
local far = call('ZRANGE', doing, '(' .. whole(now + leaseFor), '+inf', 'BYSCORE', 'LIMIT', 0, STEP)
local expired = live[deadlines] and call('ZRANGE', deadlines, 1, stamp, 'BYSCORE', 'LIMIT', 0, STEP) or {}
local asked = look('ZMSCORE', cancels, ids)

local newRuns, reasons, gaveUp, report = {}, {}, {}, {}
local toTodo, toSuspects, toDead, toCancelled, over, back = {}, {}, {}, {}, {}, {}
for i = 1, #ids do
  local id, worker, process = ids[i], holders[i], sub(leases[i], 25)
  local attempt, crashes, place, started = match(ranOf[i], '^(%d+) (%d+) (%d+) (%d+) ')
  local letter = 't'
  crashes = (tonumber(crashes) or 0) + 1
  if live[probes] and call('HGET', probes, process) == worker .. leases[i] then gaveUp[#gaveUp + 1] = process end
  if asked[i] then
    letter = 'c'
    toCancelled[#toCancelled + 1] = stamp
    toCancelled[#toCancelled + 1] = id
    over[#over + 1] = id
  elseif crashes >= limit then
    letter = 'x'
    toDead[#toDead + 1] = stamp
    toDead[#toDead + 1] = id
    reasons[#reasons + 1] = id
    reasons[#reasons + 1] = 'crashed ' .. whole(crashes) .. ' times in a row: its lease ran out each time'
    over[#over + 1] = id
  else
    local to = crashes == limit - 1 and toSuspects or toTodo
    to[#to + 1] = place or whole(5 * TOP + reserve(1, now))
    to[#to + 1] = id
    back[#back + 1] = id
  end
  newRuns[#newRuns + 1] = id
  newRuns[#newRuns + 1] = whole(math.max(0, (tonumber(attempt) or 1) - 1)) .. ' ' .. whole(crashes) .. ' ' .. (place or '0') .. ' '
    .. (started or stamp) .. ' ' .. worker
  local at = #report
  report[at + 1], report[at + 2], report[at + 3], report[at + 4] = id, worker, crashes, letter
end
local after = call('ZRANGE', doing, #names, #names, 'WITHSCORES')
local shut, late = {}, {} -- the jobs that wait past their deadline: by set, and all
for i = 1, #expired do
  local id = expired[i]
  local _, set = whereabouts(id)
  if set == scheduled or set == todo or set == parked or set == suspects then
    shut[set] = shut[set] or {}
    shut[set][#shut[set] + 1] = id
    late[#late + 1] = id
    over[#over + 1] = id
    toDead[#toDead + 1] = stamp
    toDead[#toDead + 1] = id
    reasons[#reasons + 1] = id
    reasons[#reasons + 1] = 'its deadline has passed'
  end
end
local stamps = {}
for i = 1, #far do
  stamps[2 * i - 1] = whole(now + leaseFor)
  stamps[2 * i] = far[i]
end

grow(runs, newRuns)
add('HSET', errors, reasons)
add('ZADD', doing, stamps)
add('ZADD', todo, toTodo)
add('ZADD', suspects, toSuspects)
add('ZADD', dead, toDead)
add('ZADD', cancelled, toCancelled)
mind(back, true)
close(over, false, now) -- before anything is trimmed, so that what is owed is known
local trimDone = outlived(done, tonumber(ARGV[4]), tonumber(ARGV[5]), now, STEP)
local trimCancelled = outlived(cancelled, tonumber(ARGV[4]), tonumber(ARGV[5]), now, STEP)
local trimDead = outlived(dead, tonumber(ARGV[6]), tonumber(ARGV[7]), now, STEP)
local lapsed = call('ZRANGE', awaited, '-inf', whole(now - 1), 'BYSCORE', 'LIMIT', 0, STEP)
local silent = call('ZRANGE', waiting, '-inf', whole(now - 60000), 'BYSCORE', 'LIMIT', 0, STEP)
local past = live[windows] and call('ZRANGE', windows, '-inf', stamp, 'BYSCORE', 'LIMIT', 0, STEP) or {}
local work = due(now)
local missing = call('HLEN', jobs) + #names + #late - total()
local most = tonumber(ARGV[8])
local claimable = (#toTodo + #toSuspects) / 2
if most > 0 then claimable = math.min(call('ZCARD', todo) + call('ZCARD', suspects), most - call('ZCARD', doing) + #names) end

if notes[4] ~= whole(leaseFor) or notes[5] ~= whole(noted) then
  call('HSET', meta, 'lease', whole(leaseFor), 'leased', whole(noted))
end
if period > 0 then call('HSET', meta, 'reaped', stamp, 'grace', whole(grace)) end
tell(over, wanted(over, now))
for set, list in pairs(shut) do drop('ZREM', set, list) end
drop('ZREM', doing, names)
drop('HDEL', workers, gone)
drop('HDEL', probes, gaveUp)
drop('ZREM', cancels, ids)
drop('ZREM', deadlines, expired)
trim(done, trimDone)
trim(cancelled, trimCancelled)
trim(dead, trimDead)
local erased = {}
for _, list in ipairs({ trimDone, trimCancelled, trimDead }) do
  for i = 1, #list do erased[#erased + 1] = list[i] end
end
erase(erased)
drop('ZREM', awaited, lapsed)
drop('HDEL', locks, past)
drop('ZREM', windows, past)
if #names > 0 and not paused then
  wake(claimable)
else
  drop('ZREM', waiting, silent) -- processes that died while they waited
end

local next = -1
if #after > 0 then next = math.max(0, math.min(tonumber(after[2]) - now, leaseFor) + 1) end
if #ids == 0 and now < grace then next = math.max(next, grace - now) end
for _, list in ipairs({ trimDone, trimCancelled, trimDead, lapsed, expired, past, far }) do
  if #list >= STEP then next = 0 end
end
if tasks > 0 then work = 0 end
return { 0, next, { #trimDone, #trimDead, #trimCancelled }, missing, report, late, work }
