-- Counts that children which are nowhere are dispatched again, and returns what it takes.
-- KEYS: the instance's, that of the parents.
-- ARGV: how often at most; the children's entries in children.
-- Returns: 0; for each, until these have 1 MiB: how often it has been dispatched again, this time included; what it takes, '' if that is
--   too often, or nobody wants it any more (then 0 times).

local bad = foreign()
if bad then return bad end
local most, out, bytes, new = tonumber(ARGV[1]), {}, 0, {}
for i = 2, #ARGV do
  local member = ARGV[i]
  local id, child, name = sub(member, 1, 16), sub(member, 23, 38), match(member, '\n([^\n]*)$')
  local key, wrong = recordsOf(id)
  if wrong then return wrong end
  local start, times, since, instance, body = match(head(id) and call('HGET', key, name) or '', '^(d%d+ %d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
  if not body or sub(body, 1, 16) ~= child then
    out[#out + 1] = 0
    out[#out + 1] = ''
  else
    times = tonumber(times) + 1
    bytes = bytes + #body
    if bytes > 1048576 and #out > 0 then break end
    out[#out + 1] = times
    out[#out + 1] = times <= most and body or ''
    if times <= most then new[#new + 1] = { key, name, start .. ' ' .. format('%02d', times) .. ' ' .. since .. ' ' .. instance .. '\n' .. body } end
  end
end
for i = 1, #new do call('HSET', new[i][1], new[i][2], new[i][3]) end
return { 0, out }
