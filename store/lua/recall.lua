-- Tells what it takes to dispatch children again that are nowhere; afterwards, counts that they were.
-- KEYS: the instance's, that of the parents.
-- ARGV: how often at most; 1 if they have been, 0 if they are to be; the children's entries in children.
-- Returns: 0; if they are to be, for each, until these have 1 MiB: how often it will have been dispatched again; what it takes, '' if that
--   is too often, or nobody wants it any more (then 0 times).

local bad = foreign()
if bad then return bad end
local most, done, out, bytes, new = tonumber(ARGV[1]), ARGV[2] == '1', {}, 0, {}
for i = 3, #ARGV do
  local member = ARGV[i]
  local id, child, name = sub(member, 1, 16), sub(member, 23, 38), match(member, '\n([^\n]*)$')
  local key, wrong = recordsOf(id)
  local text = not wrong and head(id) and call('HGET', key, name) or '' -- under a foreign key there is none, and others wait
  local start, times, since, instance, body = match(text, '^(d%d+ %d+) (%d+) (%d+) ([^\n]*)\n(.*)$')
  local wanted = body and sub(body, 1, 16) == child
  times = wanted and tonumber(times) + 1 or 0
  if wanted and done then
    new[#new + 1] = { key, name, start .. ' ' .. format('%02d', math.min(times, most)) .. ' ' .. since .. ' ' .. instance .. '\n' .. body }
  elseif not done then
    body = wanted and times <= most and body or ''
    bytes = bytes + #body
    if bytes > 1048576 and #out > 0 then break end
    out[#out + 1] = times
    out[#out + 1] = body
  end
end
for i = 1, #new do call('HSET', new[i][1], new[i][2], new[i][3]) end
return { 0, out }
