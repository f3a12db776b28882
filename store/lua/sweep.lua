-- Wakes the parked jobs whose time has come and takes out what has to be looked after: open children, outcomes to be brought to their
-- parents, children of jobs that have ended. What is taken comes again later if it is still there.
-- KEYS: the instance's.
-- ARGV: how many at most; the most ms until an open child is looked at again; a number below 256, another each time; jobs: then only what is
--   due since they ended, to tell their parents and children, is taken.
-- Returns: 0; ms until there is more to do, 0 at once, -1 nothing (of the jobs that were given); the jobs that are todo now; open children, each with 1 if its
--   record can be read, else 0; children and their entries of the outbox, until these have 1 MiB; children of jobs that ended, each with
--   c if it is to be cancelled, d if it is to be left to itself.

local bad = foreign()
if bad then return bad end
local now, most, longest = clock(), tonumber(ARGV[1]), tonumber(ARGV[2])
local all, woken, work = #ARGV == 3, {}, {}
if all then
  woken = live[parked] and call('ZRANGE', parked, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, 1000) or {}
  work = live[chores] and call('ZRANGE', chores, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, most) or {}
else
  local maybe = {}
  for i = 4, #ARGV do -- what owe and stray have noted: the generation may have been raised since
    local id, gen = ARGV[i], (head(ARGV[i]) or { 0 })[1]
    maybe[#maybe + 1] = 'r' .. id
    maybe[#maybe + 1] = 'sc' .. id .. format('%06d', gen)
    if gen > 0 then maybe[#maybe + 1] = 'sc' .. id .. format('%06d', gen - 1) end
  end
  local at = look('ZMSCORE', chores, maybe)
  for i = 1, #maybe do
    if at[i] and tonumber(at[i]) <= now and #work < most then work[#work + 1] = maybe[i] end
  end
end
local open, relays, strays, again, gone, stale, over, bytes = {}, {}, {}, {}, {}, {}, {}, 0
local up = {} -- the jobs that wake
for i = 1, #woken do up[woken[i]] = true end
local function later(entry, ms)
  again[#again + 1] = about(now, ms)
  again[#again + 1] = entry
end
local function fateOf(family) -- what is noted for the children of one generation
  return call('ZSCORE', chores, 'sc' .. family) and 'c' or call('ZSCORE', chores, 'sd' .. family) and 'd'
end
local function familyOf(id, gen) -- some children up to a generation, from elsewhere each time: those that can't be told stand before nobody for ever
  if not live[children] then return {} end
  local from = id .. gen .. string.char(tonumber(ARGV[3]))
  local kids = call('ZRANGEBYLEX', children, '[' .. from, '(' .. id .. format('%06d', (tonumber(gen) or 0) + 1), 'LIMIT', 0, 200)
  if #kids < 200 then
    local rest = call('ZRANGEBYLEX', children, '[' .. id .. '000000', '(' .. from, 'LIMIT', 0, 200 - #kids)
    for k = 1, #rest do kids[#kids + 1] = rest[k] end
  end
  return kids
end
local function look_at(entry, member)
  local id, child, since, name = sub(member, 1, 16), sub(member, 23, 38), tonumber(sub(member, 39, 51)), match(member, '\n([^\n]*)$')
  local state = whereabouts(id)
  local record = since and name and head(id) and redis.pcall('HGET', recordsKey(id), name)
  if type(record) == 'table' then return later(entry, longest) end -- its key is foreign
  local letter, body = sub(record or '', 1, 1), match(record or '', '^d%d+ %d+ %d+ %d+ [^\n]*\n(.*)$')
  local other = (letter == 'd' and body and sub(body, 1, 16) ~= child) or (letter ~= '' and string.find('cezkrf', letter, 1, true))
  local pending = fateOf(sub(member, 1, 22)) -- then they stay on the list until they have been seen to
  if not record and not pending and state and state < 5 then -- it was lost: the parent, when it comes to that step, writes it anew
    if state == 4 and not up[id] then woken[#woken + 1] = id end
    up[id] = true
    later(entry, math.min(math.max(now - (since or now), GRACE), longest))
  elseif not record or other or not state or state >= 5 then
    gone[#gone + 1] = entry
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
    local kids = familyOf(id, gen)
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
local next = all and due(now) or -1
if full or #woken >= 1000 then next = 0 end
return { 0, next, woken, open, relays, strays }
