-- Looks through some of the records, or of the members of one set, for jobs that are in no state or have no record, or are in several
-- states, and puts them right: such a job is dead, with its reason, unless one of its states can be trusted. What a worker holds is
-- doing, whatever else of that was lost.
-- KEYS: the instance's.
-- ARGV: what to look through: 0 the records, else the set's number; the cursor, 0 at first.
-- Returns: 0; the next cursor, 0 when all was looked through; the jobs that were put right.

local bad = foreign()
if bad then return bad end
local which, cursor = tonumber(ARGV[1]), ARGV[2]
local now = clock()
local stamp = whole(now)
local key = which == 0 and jobs or sets[which]
local notes = call('HMGET', meta, 'maxrec', 'lease')
local longest = math.max(1, tonumber(notes[1] or 1) or 1)
local deadline = whole(now + (tonumber(notes[2] or 0) or 0))
local step = which == 0 and math.max(1, math.min(100, floor(1048576 / longest))) or 100
local page = call(which == 0 and 'HSCAN' or 'ZSCAN', key, cursor, 'COUNT', step)
local stubs, reasons, buried, moved, from, over = {}, {}, {}, {}, {}, {}
local ran, leases = {}, {} -- what was lost of jobs that are doing
local freed, idle = {}, {} -- workers of jobs that others hold, and those that are not to be in doing
local trust = { 5, 6, 7, 4, 2, 8, 1 } -- of several states, the first of these counts, if it isn't doing

-- The worker that holds a job whose run does not tell: to look at all is dear, and only done where something was lost.
local holders
local function search(id)
  if not holders then
    local all = live[workers] and call('HGETALL', workers) or {}
    holders = {}
    for k = 1, #all, 2 do holders[sub(all[k + 1], 1, 16)] = all[k] end
  end
  return holders[id]
end

-- Notes what is wrong with a job, and reports whether anything is; member: the worker by which it was found, if it was.
local function mend(id, member)
  local known, told, wrong = which == 0 or call('HEXISTS', jobs, id) == 1, holderOf(id), false
  if member and told and told ~= member then -- two hold it: the later of them does
    freed[#freed + 1], idle[#idle + 1] = member, member
    return true
  end
  local holder = told or member
  local first = holder and 3
  for _, s in ipairs(trust) do
    local there = live[sets[s]] and call('ZSCORE', sets[s], id)
    if there and first then -- one state too many
      from[s] = from[s] or {}
      table.insert(from[s], id)
      wrong = true
    elseif there then
      first = s
    end
  end
  if not first then
    holder = search(id)
    first = holder and 3
  end
  if holder and not told then
    ran[#ran + 1] = id
    ran[#ran + 1] = '1 0 ' .. whole(5 * TOP + reserve(1, now)) .. ' ' .. stamp .. ' ' .. holder
    wrong = true
  end
  if holder and not (live[doing] and call('ZSCORE', doing, holder)) then -- it has a lease's time to say that it lives
    leases[#leases + 1] = deadline
    leases[#leases + 1] = holder
    wrong = true
  end
  if not known then
    stubs[#stubs + 1] = id
    stubs[#stubs + 1] = stub(now)
  end
  if (not known or not first) and not (first == 3 or first == 5 or first == 6 or first == 7) then -- what is doing, or has ended, stays so
    buried[#buried + 1] = stamp
    buried[#buried + 1] = id
    reasons[#reasons + 1] = id
    reasons[#reasons + 1] = known and 'it was in no state' or 'the record is missing'
    over[#over + 1] = id
    if first then
      from[first] = from[first] or {}
      table.insert(from[first], id)
    end
  end
  return wrong or not known or not first
end
for i = 1, #page[2], 2 do
  local id, member = page[2][i], which == 3 and page[2][i]
  if member then id = heldBy({ member })[1] end
  if id == '' then
    idle[#idle + 1] = member
  elseif mend(id, member) then
    moved[#moved + 1] = id
  end
end
add('HSET', jobs, stubs)
grow(runs, ran)
add('HSET', errors, reasons)
add('ZADD', doing, leases)
add('ZADD', dead, buried)
close(over, false, now)
tell(over, wanted(over, now))
for s, ids in pairs(from) do drop('ZREM', sets[s], ids) end
drop('ZREM', doing, idle)
drop('HDEL', workers, freed)
drop('ZREM', cancels, over)
return { 0, page[1], moved }
