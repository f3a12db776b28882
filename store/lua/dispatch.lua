-- Decides ticks: writes their records and enqueues their jobs.
-- KEYS: the instance's, the lane, cron_jobs, cron_ticks; for each entry: its records.
-- ARGV: request number; the node that asks; for each entry: its key; the latest tick that is decided, as far as the caller knows; the
--   fingerprint of its definition; for how many ms records are kept, and how many; 1 to skip a tick while the last one's job has
--   not ended; when its ticks are to be planned anew, in ms, 0 for never; number of decisions; for each, the earliest first: its letter (d
--   dispatch, s skip, h dispatch by hand, for which the latest tick and the fingerprint do not matter); the tick in ms; the first tick that
--   it stands for; the reason; the job's id; what its record says of the tick; when to run it, in ms, 0 for now.
-- Returns: 0; now in ms; when this was decided, in ms, and a line an entry, see below; 1 if the instance may be new, else 0.
--   A line is: a letter (a done as far as it goes, b other ticks are decided already, or it has become too late for these decisions, c the
--   definition is another one, e a tick is yet to come, f there is no room in this call, g there is no such entry, k the key of its records
--   is foreign, l what its jobs are made of was lost, o it is disabled); the latest tick that is decided now; the last that was dispatched; a letter for each decision that was
--   carried out: d dispatched, x decided already, s skipped, o skipped because the last one's job has not ended, f noted as failed, for
--   the first time, and still to be decided; of a foreign key its type.

local own = #kinds -- keys of the instance and the lane
local first = own + 3 -- the first of the records' keys
kinds[own + 1], kinds[own + 2] = HASH, HASH
for i = first, #KEYS do kinds[i] = ZSET end
local bad = foreign(nil, first - 1)
if bad then return bad end
local cronJobs, cronTicks = KEYS[own + 1], KEYS[own + 2]
local number, node = ARGV[1], ARGV[2]
local answer, late = said(number)
if late then return late end
local now = clock()
if answer then
  say(number, answer) -- a write, see enqueue.lua
  return { 0, whole(now), answer, 1 }
end

local taken, ranks, times, limits = {}, {}, {}, {} -- the jobs, see accept
local accepted, bytes, full = {}, 0, false
local states, written, replaced, bounds, lines = {}, {}, {}, {}, { whole(now) }

local function waits(job) -- whether it has not ended
  if job == '' then return false end
  if accepted[job] then return true end
  local state = whereabouts(job)
  return state ~= nil and state <= 4
end

local function why(record) -- its reason
  local node, rest = match(record, '^. %d+ %d+ %d+ (%d+) (.*)$')
  return sub(rest or '', (tonumber(node) or 0) + 1)
end

-- Takes the job of a decision; false if there is no room for it.
local function take(at, by, body)
  if bytes > 0 and bytes + #body > 1048576 then
    full = true
    return false
  end
  bytes = bytes + #body
  local id = ARGV[at + 4]
  if not accepted[id] and not (live[jobs] and call('HEXISTS', jobs, id) == 1) then
    local n = #taken / 2 + 1
    taken[2 * n - 1], taken[2 * n], ranks[n] = id, sub(body, 1, 1) .. ARGV[at + 5] .. sub(body, 2), 58 - byte(body, 1)
    times[n], limits[n] = ARGV[at + 6], by ~= '' and by or nil
  end
  accepted[id] = true
  return true
end

local at = 3
for i = first, #KEYS do
  local records, key, expected, rev = KEYS[i], ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local age, count, alone, decisions = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5] == '1', tonumber(ARGV[at + 7])
  local till, from = tonumber(ARGV[at + 6]), at + 8
  at = from + 7 * decisions
  local wrong = check(i, i)
  local state = live[cronTicks] and call('HGET', cronTicks, key)
  local on, high, last, is, timing, job = match(state or '', '^(%d) (%d+) (%d+) (%x+) (%x+) (.*)$')
  local letter, hand, done, new, gone = 'a', ARGV[from] == 'h', {}, {}, {}
  local by, body
  if wrong then
    letter = 'k'
  elseif not on then
    letter = 'g'
  elseif full then
    letter = 'f'
  elseif hand then
    letter = 'a' -- whatever else
  elseif is ~= rev then
    letter = 'c'
  elseif on == '0' then
    letter = 'o'
  elseif high ~= expected or till > 0 and now > till then
    letter = 'b'
  end
  if letter == 'a' then
    by, body = madeOf(live[cronJobs] and call('HGET', cronJobs, key))
    local mark = tonumber(high)
    if mark > now + AHEAD then mark = 0 end -- now the records alone tell what is decided
    local function put(kind, tick, since, job, reason, old, outcome)
      if old then gone[#gone + 1] = old end
      new[#new + 1] = tick
      new[#new + 1] = decided(kind, tick, since, now, node, job, reason)
      done[#done + 1] = outcome or kind
    end
    for d = from, at - 1, 7 do
      local kind, tick, since, reason, id = ARGV[d], ARGV[d + 1], ARGV[d + 2], ARGV[d + 3], ARGV[d + 4]
      local was, old
      if hand then
        tick = whole(now)
      elseif tonumber(tick) > now then
        letter = 'e'
        break
      else
        was, old = standing(records, tick, now)
      end
      if not hand and (tonumber(tick) <= mark or was == 'd' or was == 's') then
        done[#done + 1] = 'x'
      elseif kind == 's' then
        if was == 'f' then reason = reason .. '; it had failed: ' .. why(old) end
        put('s', tick, since, '', reason, old)
      elseif kind == 'd' and alone and waits(job) then
        put('s', tick, since, '', 'the job of the tick before has not ended', old, 'o')
      elseif not body then
        if not hand and was ~= 'f' then put('f', tick, tick, '', 'what its job is made of was lost', old) end
        letter = 'l'
        break
      elseif not take(d, by, body) then
        break
      elseif hand then
        put('h', tick, tick, id, '', nil, 'd')
      else
        put('d', tick, since, id, '', old)
        last, job = tick, id
      end
      if not hand and tonumber(tick) > mark then mark, high = tonumber(tick), tick end
    end
    written[records], replaced[records], bounds[records] = new, gone, { age, count }
  end
  if on and not wrong then
    local newer = on .. ' ' .. high .. ' ' .. last .. ' ' .. is .. ' ' .. timing .. ' ' .. job
    if newer ~= state then
      states[#states + 1] = key
      states[#states + 1] = newer
    end
  end
  lines[#lines + 1] = letter .. ' ' .. (high or '0') .. ' ' .. (last or '0') .. ' ' .. (wrong and wrong[3] or table.concat(done))
end

local fresh = 0
if #taken > 0 then fresh = accept(now, taken, nil, ranks, times, limits) end
add('HSET', cronTicks, states)
for i = first, #KEYS do
  local records = KEYS[i]
  if written[records] and #written[records] > 0 then
    add('ZADD', records, written[records])
    drop('ZREM', records, replaced[records]) -- there is another one of each of their ticks
    bound(records, bounds[records][1], bounds[records][2], now, tonumber(written[records][1]))
  end
end
answer = table.concat(lines, '\n')
say(number, answer)
return { 0, whole(now), answer, fresh }
