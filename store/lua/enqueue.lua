-- Accepts jobs.
-- KEYS: the instance's, the lane.
-- ARGV: request number; number of jobs; for each: id, record less its first 14 bytes (version and time), 10 - priority, when to
--   run: 0 for now, a time in ms, or a delay in ms with a minus before it.
-- Returns: 0; a letter for each job: a accepted, e there is one with this id; 1 if the instance may be new, else 0.

local bad = foreign()
if bad then return bad end
local number, n = tonumber(ARGV[1]), tonumber(ARGV[2])
local answer, late = said(number)
if late then return late end
if answer then return { 0, answer, 1 } end -- whoever asks again may not have made the instance known
local now = clock()

local ids = {}
for i = 1, n do ids[i] = ARGV[4 * i - 1] end
local there = look('HMGET', jobs, ids)
local notes = call('HMGET', meta, 'maxrec', 'paused', 'seq')
local soonest = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')
local first = soonest[2] and tonumber(soonest[2]) -- (to assign it to the same name goes wrong in the embedded server's Lua)

local letters, records, places, dues, seen = {}, {}, {}, {}, {}
local head, longest, claimable = '1' .. format('%013.0f', now), 0, 0
for i = 1, n do
  local id, priority, due = ids[i], ARGV[4 * i + 1], tonumber(ARGV[4 * i + 2])
  if there[i] or seen[id] then
    letters[i] = 'e'
  else
    letters[i] = 'a'
    seen[id] = true
    local record = head .. ARGV[4 * i]
    if #record > longest then longest = #record end
    records[#records + 1] = id
    records[#records + 1] = record
    if due < 0 then due = now - due end
    if due <= now then
      claimable = claimable + 1
      places[#places + 1] = tonumber(priority) * TOP
      places[#places + 1] = id
    else
      due = due * 16 + tonumber(priority)
      dues[#dues + 1] = whole(due)
      dues[#dues + 1] = id
      if not first or due < first then first, claimable = due, math.max(claimable, 1) end
    end
  end
end
if #places > 0 then
  local seq = reserve(#places / 2, now)
  for i = 1, #places, 2 do
    places[i] = whole(places[i] + seq)
    seq = seq + 1
  end
end
add('HSET', jobs, records)
add('ZADD', todo, places)
add('ZADD', scheduled, dues)
if longest > (tonumber(notes[1] or 0) or 0) then call('HSET', meta, 'maxrec', longest) end
if not notes[2] then wake(claimable) end
answer = table.concat(letters)
say(number, answer)
return { 0, answer, notes[3] and 0 or 1 }
