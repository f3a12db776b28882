-- Writes step records for the workers that hold their jobs: all that one of them asks for, or none. The first value of a step stands.
-- KEYS: the instance's; for each job its records.
-- ARGV: how many records a job may have, how many bytes of them; number of jobs, none of them twice; a letter for each record, those of a
--   job next to each other; the workers; their leases; the records' names; what they say: c a result, e a permanent failure, z a time to
--   sleep in ms, k the number of the save, a space and a position, d instance, a line's end, the child's id and what it takes to enqueue
--   it; for each detail its number, a letter, a value: N how many records that job has, if not one; C (no value) that job has
--   crashed; R the number of the record that this one may replace.
-- Returns: 0; now in ms; a letter for each job: w its one record was written, s its records stand as they do, l the lease is lost, n too
--   many records, b too many bytes, f its records' key is foreign; for each: w the record's number and generation, s the records, n and b
--   how many there would be, f the key and its type, l nothing.
-- Of the instance's keys only those that it touches are checked: who commits a step waits for it.

local bad = check(2, 3) or checkRare(24, 26)
if bad then return bad end
local most, mostBytes, n, letters = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local leases, names = 4 + n, 4 + 2 * n -- where these begin in ARGV, less one
local texts = names + #letters
local counts, crashed, replaced, ids = {}, {}, {}, {}
local recordKeys = #KEYS - n
for at = texts + #letters + 1, #ARGV, 3 do
  local letter, number = ARGV[at + 1], tonumber(ARGV[at])
  local list = letter == 'N' and counts or letter == 'C' and crashed or replaced
  list[number] = ARGV[at + 2]
end
for i = 1, n do ids[i] = sub(ARGV[leases + i], 1, 16) end
local now = clock()
local stamp = format('%013d', now)
local held = live[workers] and call('HMGET', workers, unpack(ARGV, 5, leases)) or {}
local heads = look('HMGET', stepped, ids)
local writes, newHeads, newRuns, kids, work = {}, {}, {}, {}, {}
local words = {} -- numbers in words: those of jobs that run side by side are often the same
local function word(n)
  local text = words[n]
  if not text then
    text = whole(n)
    words[n] = text
  end
  return text
end
local failed -- why the rest could not be looked at

-- The usual: the one record is a result or a failure, there is none of its name, and room for it. Then one command finds that out and
-- writes it. Returns its number and generation, or nothing if it is not as usual, and nothing was written.
local function usual(i, k, letter)
  local gen, epoch, last, count, bytes, open = '0', '0', 0, 0, 0, '0'
  if heads[i] then
    gen, epoch, last, count, bytes, open = match(heads[i], '^(%d+) (%d+) (%d+) (%d+) (%d+) %d+ (%d+)$')
    if not gen then return end
  end
  local name, number = ARGV[names + k], word(last + 1)
  local opening = number .. ' ' .. gen
  local text = letter .. opening .. '\n' .. ARGV[texts + k]
  count, bytes = count + 1, bytes + #name + #text
  if count > most or bytes > mostBytes then return end
  local new = redis.pcall('HSETNX', KEYS[recordKeys + i], name, text)
  if new ~= 1 then
    local kind = type(new) == 'table' and redis.pcall('TYPE', KEYS[recordKeys + i]).ok
    if kind == HASH or kind == 'none' then failed = new end
    return
  end
  local at = #newHeads
  newHeads[at + 1] = ids[i]
  newHeads[at + 2] = gen .. ' ' .. epoch .. ' ' .. number .. ' ' .. word(count) .. ' ' .. word(bytes) .. ' ' .. ARGV[2] .. ' ' .. open
  return opening
end

-- The record that one write makes, and what it replaces; nothing where another stands.
local function record(id, h, old, letter, name, text, replaces)
  if letter == 'k' and old and byte(old) == 107 then
    if (tonumber(match(old, '^k%d+ %d+ (%d+)\n')) or 0) >= tonumber(match(text, '^%d+')) then return end
  elseif old and not (replaces and match(old, '^%a(%d+) ') == replaces) then
    return
  end
  local number = old and letter == 'k' and match(old, '^%a(%d+) ') -- a cursor keeps its place among the steps
  if not number then
    h[3] = h[3] + 1
    number = whole(h[3])
  end
  local opening = letter .. number .. ' ' .. whole(h[1])
  if letter == 'z' then return opening .. ' ' .. whole(now + tonumber(text)) .. '\n' end
  if letter == 'k' then
    local saves, position = match(text, '^(%d+) (.*)$')
    return opening .. ' ' .. saves .. '\n' .. position
  elseif letter == 'd' then
    local instance, rest = match(text, '^([^\n]*)\n(.*)$')
    local member = id .. format('%06d', h[1]) .. sub(rest, 1, 16) .. stamp .. instance .. '\n' .. name
    return opening .. ' 00 ' .. stamp .. ' ' .. instance .. '\n' .. rest, member
  end
  return opening .. '\n' .. text
end

-- The head of a job that has lost it, though records stand: what these say. But for the epoch, which stands nowhere else.
local function recounted(key)
  local h, seen, cursor = { 0, 0, 0, 0, 0, 0, 0 }, {}, '0'
  for _ = 1, 100000 do -- it ends by itself: a bound for the sake of the server
    local page = call('HSCAN', key, cursor, 'COUNT', 1000)
    for i = 1, #page[2], 2 do
      local name, text = page[2][i], page[2][i + 1]
      local letter, number, gen = match(text, '^(%a)(%d+) (%d+)')
      if letter and not seen[name] and byte(name) ~= 1 then
        seen[name] = true
        h[1], h[3], h[4] = math.max(h[1], tonumber(gen)), math.max(h[3], tonumber(number)), h[4] + 1
        h[5] = h[5] + #name + #text
        if letter == 'd' then h[7] = h[7] + 1 end
      end
    end
    cursor = page[1]
    if cursor == '0' then break end
  end
  return h
end

-- What becomes of the job's records from the k-th to the last: a letter and what is answered with it.
local function judge(i, k, last)
  local id = ids[i]
  local h, key, there = head(id), KEYS[recordKeys + i], nil
  there = redis.pcall('HMGET', key, unpack(ARGV, names + k, names + last))
  if there.err then
    local kind = redis.pcall('TYPE', key).ok
    if kind and kind ~= HASH and kind ~= 'none' then return 'f', { key, kind } end
    failed = there
    return 'l', 0
  end
  local lost
  if not h then
    for r = 1, last - k + 1 do lost = lost or there[r] end
    h = lost and recounted(key) or { 0, 0, 0, 0, 0, 0, 0 }
  end
  local fresh, members, taken = {}, {}, {}
  for r = k, last do
    local name, at = ARGV[names + r], r - k + 1
    local old = there[at] or taken[name] or nil
    local text, member = record(id, h, old, sub(letters, r, r), name, ARGV[texts + r], replaced[r])
    if text then
      if old then
        h[5] = h[5] + #text - #old
      else
        h[4] = h[4] + 1
        h[5] = h[5] + #name + #text
      end
      if member then
        h[7] = h[7] + 1
        members[#members + 1] = member
      end
      fresh[#fresh + 1] = name
      fresh[#fresh + 1] = text
      taken[name] = text
    end
    there[at] = text or old
  end
  if #fresh == 0 and not lost then return 's', there end
  if h[4] > most then return 'n', h[4] end
  if h[5] > mostBytes then return 'b', h[5] end
  h[6] = mostBytes
  if #fresh > 0 then writes[#writes + 1] = { key, fresh } end
  newHeads[#newHeads + 1] = id
  newHeads[#newHeads + 1] = headed(h)
  for m = 1, #members do
    kids[#kids + 1] = 0
    kids[#kids + 1] = members[m]
    work[#work + 1] = about(now, GRACE + 1000)
    work[#work + 1] = 'o' .. members[m]
  end
  return 's', there, #fresh > 0
end

-- A new record ends the crashes in a row.
local function forgive(i)
  local attempt, crashes, rest = match(live[runs] and call('HGET', runs, ids[i]) or '', '^(%d+) (%d+) (.*)$')
  if crashes and crashes ~= '0' then
    newRuns[#newRuns + 1] = ids[i]
    newRuns[#newRuns + 1] = attempt .. ' 0 ' .. rest
  end
end

local said, values, k = {}, {}, 1
for i = 1, n do
  local last = k + (tonumber(counts[i]) or 1) - 1
  local letter, value, fresh = 'l', 0, false
  if held[i] == ARGV[leases + i] and not failed then
    local kind = sub(letters, k, k)
    local opening = last == k and (kind == 'c' or kind == 'e') and not replaced[k] and usual(i, k, kind)
    if opening then
      letter, value, fresh = 'w', opening, true
    elseif not failed then
      letter, value, fresh = judge(i, k, last)
    end
    if fresh and crashed[i] then forgive(i) end
  end
  said[i], values[i] = letter, value
  k = last + 1
end
for i = 1, #writes do many('HSET', writes[i][1], writes[i][2]) end
add('HSET', stepped, newHeads)
add('HSET', runs, newRuns)
add('ZADD', children, kids)
add('ZADD', chores, work)
return failed or { 0, stamp, table.concat(said), values }
