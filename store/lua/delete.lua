-- Removes jobs that nobody holds.
-- KEYS: the instance's.
-- ARGV: the ids.
-- Returns: 0; for each id the state that the job was in: 0 there is no such job, 3 it is doing and stays, -1 it was in none;
--   how many of them have left somebody to be told.

local bad = foreign()
if bad then return bad end
local now = clock()
local out, gone, from, unfinished = {}, {}, {}, {}
for i = 1, #ARGV do
  local id = ARGV[i]
  local state, set = whereabouts(id)
  local known = call('HEXISTS', jobs, id) == 1
  if state ~= 3 and (state or known) then
    gone[#gone + 1] = id
    if not state or state < 5 then unfinished[#unfinished + 1] = id end
    if set then
      from[set] = from[set] or {}
      from[set][#from[set] + 1] = id
    end
  end
  out[i] = state or known and -1 or 0
end
owe(unfinished, 'g', now)
stray(unfinished, 'c', now)
tell(gone, wanted(gone, now))
for set, ids in pairs(from) do drop('ZREM', set, ids) end
drop('ZREM', deadlines, gone)
erase(gone)
return { 0, out, tasks }
