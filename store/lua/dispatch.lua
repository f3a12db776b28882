-- Decides ticks: writes their records and enqueues their jobs.
-- KEYS: the instance's, the lane, cron_jobs, cron_ticks; for each entry: its records.
-- ARGV: request number; the node that asks; for each entry: its key; the latest tick that is decided, as far as the caller knows; the
--   fingerprint of its definition; for how many ms records are kept, and how many; 1 to skip a tick while the last one's job has
--   not ended; number of decisions; for each, the earliest first: its letter (d dispatch, s skip, h dispatch by hand, for which the
--   latest tick and the fingerprint do not matter); the tick in ms; the first tick that it stands for; the reason; the job's id; what
--   its record says of the tick; when to run it, in ms, 0 for now.
-- Returns: 0; now in ms; a line an entry, see below; 1 if the instance may be new, else 0.
--   A line is: a letter (a done as far as it goes, b other ticks are decided already, c the definition is another one, e a tick is yet
--   to come, f there is no room in this call, g there is no such entry, o it is disabled); the latest tick that is decided now; the
--   last that was dispatched; a letter for each decision that was carried out: d dispatched, x it was already, s skipped, o skipped
--   because the last one's job has not ended.

local own = #kinds -- keys of the instance and the lane
local first = own + 3 -- the first of the records' keys
kinds[own + 1], kinds[own + 2] = HASH, HASH
for i = first, #KEYS do kinds[i] = ZSET end
local bad = foreign()
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
local states, written, replaced, bounds, lines = {}, {}, {}, {}, {}

local function waits(job) -- whether it has not ended
  if job == '' then return false end
  if accepted[job] then return true end
  local state = whereabouts(job)
  return state ~= nil and state <= 4
end

-- The record that a tick has: its letter, itself.
local function known(records, tick)
  if not live[records] then return end
  local some = call('ZRANGE', records, tick, tick, 'BYSCORE', 'LIMIT', 0, 100)
  for i = 1, #some do
    if sub(some[i], 1, 1) ~= 'h' then return sub(some[i], 1, 1), some[i] end
  end
end

-- Takes the job of a decision; false if there is no room for it.
local function take(key, at)
  local template = call('HGET', cronJobs, key) or ' 5\0null'
  if bytes > 0 and bytes + #template > 1048576 then
    full = true
    return false
  end
  bytes = bytes + #template
  local gap, id = string.find(template, ' ', 1, true), ARGV[at + 4]
  local by, body = sub(template, 1, gap - 1), sub(template, gap + 1)
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
  local age, count, alone, decisions = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4]), ARGV[at + 5] == '1', tonumber(ARGV[at + 6])
  local from = at + 7
  at = from + 7 * decisions
  local state = live[cronTicks] and call('HGET', cronTicks, key)
  local on, high, last, is, timing, job = match(state or '', '^(%d) (%d+) (%d+) (%x+) (%x+) (.*)$')
  local letter, hand, done, new, gone = 'a', ARGV[from] == 'h', {}, {}, {}
  if on and tonumber(high) > now + 3600000 then high = whole(now) end -- the clock has gone back
  if not on then
    letter = 'g'
  elseif full then
    letter = 'f'
  elseif hand then
    letter = 'a' -- whatever else
  elseif is ~= rev then
    letter = 'c'
  elseif on == '0' then
    letter = 'o'
  elseif high ~= expected then
    letter = 'b'
  end
  if letter == 'a' then
    for d = from, at - 1, 7 do
      local kind, tick, since, reason = ARGV[d], ARGV[d + 1], ARGV[d + 2], ARGV[d + 3]
      if hand then
        if not take(key, d) then break end
        tick = whole(now)
        new[#new + 1] = tick
        new[#new + 1] = decided('h', tick, tick, now, node, ARGV[d + 4], reason)
        done[#done + 1] = 'd'
      else
        if tonumber(tick) > now then
          letter = 'e'
          break
        end
        local was, old = known(records, tick)
        if was == 'd' then
          done[#done + 1] = 'x'
        elseif kind == 'd' and alone and waits(job) then
          if old then gone[#gone + 1] = old end
          new[#new + 1] = tick
          new[#new + 1] = decided('s', tick, since, now, node, '', 'the job of the tick before has not ended')
          done[#done + 1] = 'o'
        elseif kind == 'd' then
          if not take(key, d) then break end
          if old then gone[#gone + 1] = old end
          new[#new + 1] = tick
          new[#new + 1] = decided('d', tick, since, now, node, ARGV[d + 4], '')
          last, job = tick, ARGV[d + 4]
          done[#done + 1] = 'd'
        else
          if not old then
            new[#new + 1] = tick
            new[#new + 1] = decided('s', tick, since, now, node, '', reason)
          end
          done[#done + 1] = 's'
        end
        high = tick
      end
    end
    written[records], replaced[records], bounds[records] = new, gone, { age, count }
  end
  if on then
    local newer = on .. ' ' .. high .. ' ' .. last .. ' ' .. is .. ' ' .. timing .. ' ' .. job
    if newer ~= state then
      states[#states + 1] = key
      states[#states + 1] = newer
    end
  end
  lines[#lines + 1] = letter .. ' ' .. (high or '0') .. ' ' .. (last or '0') .. ' ' .. table.concat(done)
end

local fresh = 0
if #taken > 0 then fresh = accept(now, taken, nil, ranks, times, limits) end
add('HSET', cronTicks, states)
for i = first, #KEYS do
  local records = KEYS[i]
  if written[records] and #written[records] > 0 then
    add('ZADD', records, written[records])
    local over = call('ZCARD', records) - bounds[records][2]
    drop('ZREM', records, replaced[records])
    drop('ZREMRANGEBYSCORE', records, { '-inf', whole(now - bounds[records][1]) })
    if over > 0 then drop('ZREMRANGEBYRANK', records, { 0, over - 1 }) end
  end
end
answer = table.concat(lines, '\n')
say(number, answer)
return { 0, whole(now), answer, fresh }
