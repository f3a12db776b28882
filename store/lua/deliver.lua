-- Brings outcomes of children to their parents: the first stands, and what a parked parent waits for may be there with it.
-- KEYS: the instance's, that of the parents.
-- ARGV: for each outcome: the parent's id; name of the step; the child's id; its fate: d done, x dead, c cancelled, g gone, l lost; its
--   result or the reason; 1 if it is to be noted although the record can't be read, else 0.
-- Returns: 0; a letter for each: w written, i it had one, or nobody wants it, k it is to be kept for now: it may be a child of before its
--   parent was requeued or removed, and those have not been told, f as well: its records' key is foreign; the parents that are todo with it;
--   foreign keys, each with its type.

local bad = foreign()
if bad then return bad end
local now, n = clock(), #ARGV / 6
local keys, heads, waits, dirty, ready = {}, {}, {}, {}, {}
local letters, new, gone, shut, marks = {}, {}, {}, {}, {}
local spoilt, foul = {}, {} -- the parents whose records' key is foreign; these keys, each with its type
for i = 1, n do
  local id = ARGV[6 * i - 5]
  if not keys[id] then
    local wrong
    keys[id], wrong = recordsOf(id)
    if wrong then
      foul[#foul + 1], foul[#foul + 2] = wrong[2], wrong[3]
      spoilt[id] = true
    else
      heads[id] = head(id)
    end
  end
end
for i = 1, n do
  local at = 6 * i
  local id, name, child, fate, text = ARGV[at - 5], ARGV[at - 4], ARGV[at - 3], ARGV[at - 2], ARGV[at - 1]
  local key, h = keys[id], heads[id]
  local old = h and call('HGET', key, name)
  local seq, gen, since, instance, body = match(old or '', '^d(%d+) (%d+) %d+ (%d+) ([^\n]*)\n(.*)$')
  local open = body and sub(body, 1, 16) == child
  local letter = sub(old or '', 1, 1)
  local broken = old and not body and ARGV[at] == '1' and (letter == '' or not string.find('cezkrf', letter, 1, true))
  local mine = id .. '\n' .. name
  letters[i] = spoilt[id] and 'f' or 'i'
  if (open or broken) and not new[mine] then
    letters[i] = 'w'
    seq, gen, instance = seq or whole(h[3]), gen or whole(h[1]), instance or ''
    local opening = seq .. ' ' .. gen .. ' ' .. instance .. '\n' .. child
    local record = fate == 'd' and 'r' .. opening .. text or 'f' .. opening .. fate .. text
    if fate == 'd' and h[5] + #record - #old > h[6] then
      record = 'f' .. opening .. 'bits result of ' .. whole(#text) .. ' bytes is more than the steps of the job may have'
    end
    h[5] = h[5] + #record - #old
    h[7] = math.max(0, h[7] - 1)
    if open then
      local member = id .. format('%06d', tonumber(gen)) .. child .. since .. instance .. '\n' .. name
      gone[#gone + 1] = member
      shut[#shut + 1] = 'o' .. member
    end
    new[mine] = { id, name, record }
    dirty[id] = true
    local wait = waits[id]
    if not wait then
      local text = call('HGET', key, '\1') or ''
      local left, mode, first = match(sub(text, 9), '^(%d+) ([ayz]) (.*)$')
      wait = { sub(text, 1, 8), tonumber(left), mode, first }
      waits[id] = wait
    end
    if wait[2] and wait[3] ~= 'z' and call('HGET', key, '\1' .. name) == wait[1] then
      wait[2] = wait[2] - 1
      marks[id] = marks[id] or {}
      table.insert(marks[id], '\1' .. name)
      if wait[2] <= 0 or wait[3] == 'y' or sub(record, 1, 1) == 'f' then ready[id] = true end
    end
  elseif letters[i] == 'i' and not (h and h[1] == 0) then
    local at = match(old or '', '^[rf]%d+ %d+ [^\n]*\n()')
    if not (at and sub(old, at, at + 15) == child) and leaves(id, h and h[1]) then letters[i] = 'k' end
  end
end

local woken = {}
for id in pairs(ready) do
  if live[parked] and call('ZSCORE', parked, id) then woken[#woken + 1] = id end
end
for _, one in pairs(new) do call('HSET', keys[one[1]], one[2], one[3]) end
for id in pairs(dirty) do
  local wait = waits[id]
  call('HSET', stepped, id, headed(heads[id]))
  if marks[id] then call('HSET', keys[id], '\1', wait[1] .. whole(math.max(0, wait[2])) .. ' ' .. wait[3] .. ' ' .. wait[4]) end
end
for id, list in pairs(marks) do many('HDEL', keys[id], list) end
drop('ZREM', children, gone)
drop('ZREM', chores, shut)
if #woken > 0 then
  unpark(woken, now)
  if not call('HGET', meta, 'paused') then wake(#woken) end
end
return { 0, table.concat(letters), woken, foul }
