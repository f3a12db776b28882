-- Tells whether a child is wanted: its parent has an open record of it, or ended without needing it.
-- KEYS: the instance's, that of the parent.
-- ARGV: the parent's id; name of the step; the child's id; the child's generation.
-- Returns: 0; 1 if so, else 0.

local bad = foreign()
if bad then return bad end
local id, name, child, gen = ARGV[1], ARGV[2], ARGV[3], format('%06d', tonumber(ARGV[4]))
local key, wrong = recordsOf(id)
if wrong then return wrong end
local ended = whereabouts(id)
local body = match(call('HGET', key, name) or '', '^d%d+ %d+ %d+ %d+ [^\n]*\n(.*)$')
local open = body and sub(body, 1, 16) == child and (ended or 1) < 5 and call('HEXISTS', jobs, id) == 1
if not open and live[chores] and live[children] and call('ZSCORE', chores, 'sd' .. id .. gen) then -- done, and to let go of those that are open
  local start = id .. gen .. child
  open = #call('ZRANGEBYLEX', children, '[' .. start, '[' .. start .. '\255', 'LIMIT', 0, 1) > 0
end
return { 0, open and 1 or 0 }
