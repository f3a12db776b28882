-- Ends the leases that ran out, at most 1,000, and removes what retention no longer keeps.
-- KEYS: the instance's.
-- ARGV: crashes in a row at which a job is dead; of done and cancelled jobs how many are kept (-1: any number) and for how many
--   ms (-1: for ever); the same two of dead ones.
-- Returns: 0; ms until the next lease runs out (0: there is more to do at once, -1: none); {done, dead, cancelled jobs
--   trimmed}; records less jobs in a state; for each lease that was ended: job, worker, crashes, the letter of the state
--   that the job is in: t todo, x dead, c cancelled.

local bad = foreign()
if bad then return bad end
local limit = tonumber(ARGV[1])
local now = clock()
local stamp = whole(now)
local ids = call('ZRANGE', doing, '-inf', whole(now - 1), 'BYSCORE', 'LIMIT', 0, 1000)
local ranOf, asked = look('HMGET', runs, ids), look('ZMSCORE', cancels, ids)
local paused = call('HGET', meta, 'paused')

local names, parsed, lost = {}, {}, nil
for i = 1, #ids do
  local attempt, crashes, place, started, worker = match(ranOf[i] or '', '^(%d+) (%d+) (%d+) (%d+) (.*)$')
  parsed[i] = { tonumber(attempt) or 1, tonumber(crashes) or 0, place, started or stamp, worker or string.rep('\0', 16) }
  if not worker then
    lost = lost or {}
    lost[ids[i]] = parsed[i]
  end
end
if lost and live[workers] then -- who holds what has no run: only a look at all tells
  local all = call('HGETALL', workers)
  for k = 1, #all, 2 do
    local run = lost[sub(all[k + 1], 1, 16)]
    if run then run[5] = all[k] end
  end
end
for i = 1, #ids do names[i] = parsed[i][5] end
local held = look('HMGET', workers, names)
local newRuns, reasons, freed, report = {}, {}, {}, {}
local toTodo, toDead, toCancelled, over = {}, {}, {}, {}
for i = 1, #ids do
  local id, run = ids[i], parsed[i]
  local crashes, letter = run[2] + 1, 't'
  if held[i] and sub(held[i], 1, 16) == id then freed[#freed + 1] = names[i] end
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
    toTodo[#toTodo + 1] = run[3] or whole(5 * TOP + reserve(1, now))
    toTodo[#toTodo + 1] = id
  end
  newRuns[#newRuns + 1] = id
  newRuns[#newRuns + 1] = whole(math.max(0, run[1] - 1)) .. ' ' .. whole(crashes) .. ' ' .. (run[3] or '0') .. ' ' .. run[4] .. ' ' .. run[5]
  local at = #report
  report[at + 1], report[at + 2], report[at + 3], report[at + 4] = id, run[5], crashes, letter
end
local after = call('ZRANGE', doing, #ids, #ids, 'WITHSCORES')

add('HSET', runs, newRuns)
add('HSET', errors, reasons)
add('ZADD', todo, toTodo)
add('ZADD', dead, toDead)
add('ZADD', cancelled, toCancelled)
local trimDone = outlived(done, tonumber(ARGV[2]), tonumber(ARGV[3]), now)
local trimCancelled = outlived(cancelled, tonumber(ARGV[2]), tonumber(ARGV[3]), now)
local trimDead = outlived(dead, tonumber(ARGV[4]), tonumber(ARGV[5]), now)
local lapsed = call('ZRANGE', awaited, '-inf', whole(now - 1), 'BYSCORE', 'LIMIT', 0, 1000)
local silent = call('ZRANGE', waiting, '-inf', whole(now - 60000), 'BYSCORE', 'LIMIT', 0, 1000)
local missing = call('HLEN', jobs) + #ids
for _, state in ipairs({ scheduled, todo, doing, parked, done, dead, cancelled }) do missing = missing - call('ZCARD', state) end

tell(over, wanted(over, now))
drop('ZREM', doing, ids)
drop('HDEL', workers, freed)
drop('ZREM', cancels, ids)
trim(done, trimDone)
trim(cancelled, trimCancelled)
trim(dead, trimDead)
for _, list in ipairs({ trimDone, trimCancelled, trimDead }) do erase(list) end
drop('ZREM', awaited, lapsed)
if #toTodo > 0 and not paused then
  wake(#toTodo / 2)
else
  drop('ZREM', waiting, silent) -- processes that died while they waited
end

local next = -1
if #after > 0 then next = math.max(0, tonumber(after[2]) - now + 1) end
if #trimDone >= 1000 or #trimCancelled >= 1000 or #trimDead >= 1000 or #lapsed >= 1000 then next = 0 end
return { 0, next, { #trimDone, #trimDead, #trimCancelled }, missing, report }
