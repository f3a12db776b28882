-- Tells what has become of children.
-- KEYS: the instance's, that of the children.
-- ARGV: the children.
-- Returns: 0; for each, until these have 1 MiB: its fate, that of the outbox (see owe) or w it has not ended, n there is none; its
--   result or the reason.

local bad = foreign()
if bad then return bad end
local out, bytes = {}, 0
for i = 1, #ARGV do
  local id = ARGV[i]
  local letter, size, rest = match(live[outbox] and call('HGET', outbox, id) or '', '^(%a)(%d+) (.*)$')
  local text = letter and sub(rest, tonumber(size) + 1) or ''
  if not letter then
    local state = whereabouts(id)
    letter = (call('HEXISTS', jobs, id) == 0 and not state) and 'n' or state == 5 and 'd' or state == 6 and 'x' or state == 7 and 'c' or 'w'
    local from = letter == 'd' and results or errors
    if letter ~= 'n' and letter ~= 'w' then text = live[from] and call('HGET', from, id) or '' end
  end
  bytes = bytes + #text
  if bytes > 1048576 and #out > 0 then break end
  out[#out + 1] = letter
  out[#out + 1] = text
end
return { 0, out }
