-- Reads what keeps a job from running.
-- KEYS: the instance's.
-- ARGV: id.
-- Returns: 0, and if there is such a job: its state's number; its score there; 1 if the instance is paused, else 0; how many jobs
--   are served before it (todo), else 0; 1 if it is suspected of crashing, else 0; how many jobs of the instance are
--   doing; the limit on that, 0 for none; ms until the rate allows another claim, 0 if it does; 1 if a cancel is requested, else 0;
--   now in ms; its last error; what it waits for, if it is parked: what was noted by parking less the nonce; the record of the first
--   step of that that is open (of 100 that are looked at).

local bad = foreign()
if bad then return bad end
local id = ARGV[1]
if call('HEXISTS', jobs, id) == 0 then return { 0 } end
local state, set, score = whereabouts(id)
local now = clock()
local notes = call('HMGET', meta, 'paused', 'limit', 'rate')
local ahead, suspected = 0, 0
if state == 2 then
  ahead = call('ZRANK', set, id)
  if set == suspects then suspected = 1 end
end
local wait, record = '', ''
if state == 4 and head(id) then
  local key, wrong = recordsOf(id)
  if wrong then return wrong end
  local note = call('HGET', key, '\1') or ''
  local nonce, mode, step = sub(note, 1, 8), match(sub(note, 9), '^(%d+ %a )(.*)$')
  record = step and call('HGET', key, step) or ''
  if step and sub(record, 1, 1) ~= 'd' and live[children] then -- of many it has ended: another that is marked as waited for
    local open = call('ZRANGEBYLEX', children, '[' .. id, '(' .. id .. ':', 'LIMIT', 0, 100)
    for i = 1, #open do
      local name = match(open[i], '\n([^\n]*)$')
      if name and call('HGET', key, '\1' .. name) == nonce then
        step, record = name, call('HGET', key, name) or ''
        break
      end
    end
  end
  if step then wait, record = mode .. step, sub(record, 1, 300) end
end
return { 0, state or 0, score or '0', notes[1] and 1 or 0, ahead, suspected, call('ZCARD', doing), tonumber(notes[2] or 0) or 0,
  math.max(0, math.ceil((tonumber(notes[3] or 0) or 0) - now)), live[cancels] and call('ZSCORE', cancels, id) and 1 or 0, whole(now),
  call('HGET', errors, id) or '', wait, record }
