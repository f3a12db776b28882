-- Wakes the parked jobs whose time has come and takes out what has to be looked after: open children, outcomes to be brought to their
-- parents, children of jobs that have ended. What is taken comes again later if it is still there.
-- KEYS: the instance's.
-- ARGV: how many at most; the most ms until an open child is looked at again.
-- Returns: 0; ms until there is more to do, 0 at once, -1 nothing; the jobs that are todo now; open children, each with 1 if its
--   record can be read, else 0; children and their entries of the outbox, until these have 1 MiB; children of jobs that ended, each with
--   c if it is to be cancelled, d if it is to be left to itself.

local bad = foreign()
if bad then return bad end
local now, most, longest = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
local woken = live[parked] and call('ZRANGE', parked, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, 1000) or {}
local work = live[chores] and call('ZRANGE', chores, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, most) or {}
local open, relays, strays, again, gone, stale, over, bytes = {}, {}, {}, {}, {}, {}, {}, 0
local function later(entry, ms)
  again[#again + 1] = about(now, ms)
  again[#again + 1] = entry
end
local function fateOf(family) -- what is noted for the children of one generation
  return call('ZSCORE', chores, 'sc' .. family) and 'c' or call('ZSCORE', chores, 'sd' .. family) and 'd'
end
local function look_at(entry, member)
  local id, child, since, name = sub(member, 1, 16), sub(member, 23, 38), tonumber(sub(member, 39, 51)), match(member, '\n([^\n]*)$')
  local state = whereabouts(id)
  local record = since and name and head(id) and redis.pcall('HGET', recordsKey(id), name)
  if type(record) == 'table' then return later(entry, longest) end -- its key is foreign
  local letter, body = sub(record or '', 1, 1), match(record or '', '^d%d+ %d+ %d+ %d+ [^\n]*\n(.*)$')
  local other = (letter == 'd' and body and sub(body, 1, 16) ~= child) or (letter ~= '' and string.find('cezkrf', letter, 1, true))
  if not record or other or not state or state >= 5 then
    gone[#gone + 1] = entry
    local pending = fateOf(sub(member, 1, 22)) -- then they stay on the list until they have been seen to
    if not pending and (other or not record) then stale[#stale + 1] = member end
  else
    later(entry, math.min(math.max(now - since, GRACE), longest))
    open[#open + 1] = member
    open[#open + 1] = body and 1 or 0
  end
end
local full = #work == most
for i = 1, #work do
  local entry = work[i]
  local kind, rest = sub(entry, 1, 1), sub(entry, 2)
  if kind == 'o' and #rest > 52 then
    look_at(entry, rest)
  elseif kind == 'r' and live[outbox] and call('HEXISTS', outbox, rest) == 1 then
    bytes = bytes + call('HSTRLEN', outbox, rest) -- what is too much is not even read
    if bytes > 1048576 and #relays > 0 then
      full = true
    else
      later(entry, GRACE)
      relays[#relays + 1] = rest
      relays[#relays + 1] = call('HGET', outbox, rest)
    end
  elseif kind == 's' and #rest == 23 and #strays > 400 then
    full = true
  elseif kind == 's' and #rest == 23 then
    local fate, id, gen = sub(rest, 1, 1), sub(rest, 2, 17), sub(rest, 18)
    local kids = live[children] and call('ZRANGEBYLEX', children, '[' .. id .. '000000', '(' .. id .. format('%06d', (tonumber(gen) or 0) + 1), 'LIMIT', 0, 200) or {}
    if #kids == 0 then
      gone[#gone + 1] = entry
      if call('HEXISTS', jobs, id) == 0 and not leaves(id) then
        over[#over + 1] = id
        straysOf(gone, id, (head(id) or { 0 })[1])
      end
    else
      later(entry, #kids == 200 and 0 or GRACE)
      full = full or #kids == 200
      for k = 1, #kids do
        strays[#strays + 1] = kids[k]
        local family = sub(kids[k], 1, 22) -- that of a generation before may have another fate
        strays[#strays + 1] = family ~= id .. gen and fateOf(family) or fate
      end
    end
  else
    gone[#gone + 1] = entry -- it is nothing of ours, or of no use any more
  end
end
add('ZADD', chores, again)
drop('ZREM', children, stale)
drop('ZREM', chores, gone)
drop('HDEL', stepped, over) -- see erase
if #woken > 0 then
  unpark(woken, now)
  if not call('HGET', meta, 'paused') then wake(#woken) end
end
local next = due(now)
if full or #woken == 1000 then next = 0 end
return { 0, next, woken, open, relays, strays }
