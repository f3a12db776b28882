-- Looks through some of the records, or of the jobs of one set, for jobs that are in no state or have no record, or are in several
-- states, and puts them right: such a job is dead, with its reason, unless one of its states can be trusted.
-- KEYS: the instance's.
-- ARGV: what to look through: 0 the records, else the set's number; the cursor, 0 at first.
-- Returns: 0; the next cursor, 0 when all was looked through; the jobs that were put right.

local bad = foreign()
if bad then return bad end
local which, cursor = tonumber(ARGV[1]), ARGV[2]
local now = clock()
local stamp = whole(now)
local key = which == 0 and jobs or sets[which]
local longest = math.max(1, tonumber(call('HGET', meta, 'maxrec') or 1) or 1)
local step = which == 0 and math.max(1, math.min(100, floor(1048576 / longest))) or 100
local page = call(which == 0 and 'HSCAN' or 'ZSCAN', key, cursor, 'COUNT', step)
local stubs, reasons, buried, moved, from, over, freed = {}, {}, {}, {}, {}, {}, {}
local trust = { 3, 5, 6, 7, 4, 2, 8, 1 } -- of several states, the first of these counts
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local known, first = which == 0 or call('HEXISTS', jobs, id) == 1, nil
  for _, s in ipairs(trust) do
    local there = live[sets[s]] and call('ZSCORE', sets[s], id)
    if there and first then -- one state too many
      from[s] = from[s] or {}
      table.insert(from[s], id)
      moved[#moved + 1] = id
    elseif there then
      first = s
    end
  end
  if not known or not first then
    moved[#moved + 1] = id
    if not known then
      stubs[#stubs + 1] = id
      stubs[#stubs + 1] = stub(now)
    end
    if first ~= 3 and first ~= 5 and first ~= 6 and first ~= 7 then -- what is doing, or has ended, stays so
      buried[#buried + 1] = stamp
      buried[#buried + 1] = id
      reasons[#reasons + 1] = id
      reasons[#reasons + 1] = known and 'it was in no state' or 'the record is missing'
      over[#over + 1] = id
      local worker = workerOf(id)
      local lease = worker and live[workers] and call('HGET', workers, worker)
      if lease and sub(lease, 1, 16) == id then freed[#freed + 1] = worker end -- what it writes from now on is stale
      if first then
        from[first] = from[first] or {}
        table.insert(from[first], id)
      end
    end
  end
end
add('HSET', jobs, stubs)
add('HSET', errors, reasons)
add('ZADD', dead, buried)
close(over, false, now)
tell(over, wanted(over, now))
for s, ids in pairs(from) do drop('ZREM', sets[s], ids) end
drop('HDEL', workers, freed)
drop('ZREM', cancels, over)
return { 0, page[1], moved }
