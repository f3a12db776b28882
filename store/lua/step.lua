-- Writes step records for the workers that hold their jobs: all that one of them asks for, or none. The first value of a step stands.
-- KEYS: the instance's.
-- ARGV: number of jobs; for each: worker, its lease; how many records the job may have, how many bytes of them; number of records;
--   for each of these: its letter, name, and what it says: c a result, e a permanent failure, z a time to sleep in ms, k the number of
--   the save, a space and a position, d instance, a line's end, the child's id and what it takes to enqueue it; R in front of a
--   letter and the number of the record that it may replace. No job stands in it twice.
-- Returns: 0; now in ms; for each job: w written, l the lease is lost, n too many records, b too many bytes, f its records' key is
--   foreign; its entry in stepped; for each record what stands there now; how many records, or bytes, there would be, or the key
--   and its type.

local bad = foreign()
if bad then return bad end
local now = clock()
local stamp = format('%013.0f', now)
local asks, names, ids = {}, {}, {}
local at = 2
for i = 1, tonumber(ARGV[1]) do
  local n = tonumber(ARGV[at + 4])
  asks[i] = { ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), n, at + 5 }
  names[i], ids[i] = ARGV[at], sub(ARGV[at + 1], 1, 16)
  at = at + 5 + 3 * n
end
local held, heads, ran = look('HMGET', workers, names), look('HMGET', stepped, ids), look('HMGET', runs, ids)
local out, writes, newHeads, newRuns, kids, work = {}, {}, {}, {}, {}, {}

-- The record that one write makes, and what it replaces; nothing where another stands.
local function record(id, h, old, letter, name, text)
  local replaces
  if #letter > 1 then
    replaces, letter = match(letter, '^R(%d+)'), sub(letter, -1)
  end
  if letter == 'k' and old and byte(old) == 107 then
    if (tonumber(match(old, '^k%d+ %d+ (%d+)\n')) or 0) >= tonumber(match(text, '^%d+')) then return end
  elseif old and not (replaces and match(old, '^%a(%d+) ') == replaces) then
    return
  end
  local number = old and match(old, '^%a(%d+) ') -- what takes a record's place has its number
  if not number then
    h[3] = h[3] + 1
    number = format('%.0f', h[3])
  end
  local opening = letter .. number .. ' ' .. format('%.0f', h[1])
  if letter == 'z' then return opening .. ' ' .. whole(now + tonumber(text)) .. '\n' end
  if letter == 'k' then
    local saves, position = match(text, '^(%d+) (.*)$')
    return opening .. ' ' .. saves .. '\n' .. position
  elseif letter == 'd' then
    local instance, rest = match(text, '^([^\n]*)\n(.*)$')
    local member = id .. format('%06.0f', h[1]) .. sub(rest, 1, 16) .. stamp .. instance .. '\n' .. name
    return opening .. ' 00 ' .. stamp .. ' ' .. instance .. '\n' .. rest, member
  end
  return opening .. '\n' .. text
end

local function judge(i)
  local lease, most, mostBytes, n, from = unpack(asks[i], 1, 5)
  local id = ids[i]
  if held[i] ~= lease then return 'l', '', {}, 0 end
  local h, key, steps = { 0, 0, 0, 0, 0, 0, 0 }, recordsKey(id), {}
  if heads[i] then h = parse(heads[i]) end
  for k = 1, n do steps[k] = ARGV[from + 3 * k - 2] end
  local there = redis.pcall('HMGET', key, unpack(steps, 1, n))
  if there.err then return 'f', key, {}, call('TYPE', key).ok end
  local fresh, members, taken = {}, {}, {}
  for k = 1, n do
    local name = steps[k]
    local old = there[k] or taken[name] or nil
    local text, member = record(id, h, old, ARGV[from + 3 * k - 3], name, ARGV[from + 3 * k - 1])
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
    there[k] = text or old
  end
  if #fresh > 0 then
    if h[4] > most then return 'n', '', {}, h[4] end
    if h[5] > mostBytes then return 'b', '', {}, h[5] end
    h[6] = mostBytes
    writes[#writes + 1] = { key, fresh }
    newHeads[#newHeads + 1] = id
    newHeads[#newHeads + 1] = headed(h)
    for k = 1, #members do
      kids[#kids + 1] = 0
      kids[#kids + 1] = members[k]
      work[#work + 1] = whole(now + GRACE)
      work[#work + 1] = 'o' .. members[k]
    end
    local attempt, crashes, rest = match(ran[i] or '', '^(%d+) (%d+) (.*)$')
    if crashes and crashes ~= '0' then
      newRuns[#newRuns + 1] = id
      newRuns[#newRuns + 1] = attempt .. ' 0 ' .. rest
    end
  end
  return 'w', headed(h), there, 0
end

for i = 1, #asks do
  local o = 4 * i
  out[o - 3], out[o - 2], out[o - 1], out[o] = judge(i)
end
for i = 1, #writes do many('HSET', writes[i][1], writes[i][2]) end
add('HSET', stepped, newHeads)
add('HSET', runs, newRuns)
add('ZADD', children, kids)
add('ZADD', chores, work)
return { 0, whole(now), out }
